"""User interfaces beside `fit`: estimators, tables, evaluation, reports, command line, export."""
