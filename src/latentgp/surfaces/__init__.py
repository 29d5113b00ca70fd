"""What users call beside `fit`: estimators, tables, evaluation, reports, command line, export."""
