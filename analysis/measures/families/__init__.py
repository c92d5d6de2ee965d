"""The metrics, with a module of ``METRICS`` for each kind of data."""
