"""Tables in CSV and Parquet files, read a piece at a time."""
