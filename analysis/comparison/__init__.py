"""Comparison of two sets of runs, differences of their inputs, and history of nightly runs."""
