"""Import of results of other programs as sets of runs."""
