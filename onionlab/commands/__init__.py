"""One module for each verb of the console program."""
