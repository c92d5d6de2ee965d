"""The metrics, one module of ``METRICS`` for each kind of data that they are about."""
