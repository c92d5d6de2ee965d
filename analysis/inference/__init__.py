"""Intervals, bands, tests and stopping rules. Arrays in, numbers out."""
