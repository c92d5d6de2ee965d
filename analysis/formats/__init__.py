"""File formats, each with a model that writes and reads it."""
