"""Metrics of one run, by family, and their computation from record tables."""
