"""Writing, reading and checking of the files of runs, records and results."""
