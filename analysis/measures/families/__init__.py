"""The metrics. Each module has the ``METRICS`` of one kind of data."""
