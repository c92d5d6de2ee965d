"""Figures of a study, with a module for each family of metrics."""
