"""The commands of the console program, one module each."""
