"""Extraction of record tables from the logs of a run."""
