"""Other people's results as sets of runs."""
