"""A run's logs to its record tables."""
