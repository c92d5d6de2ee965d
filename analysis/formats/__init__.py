"""File formats: one model for each, which writes it and reads it."""
