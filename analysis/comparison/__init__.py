"""Comparison of two sets of runs, their differences, and the history of nightly runs."""
