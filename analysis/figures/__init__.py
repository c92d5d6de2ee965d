"""Figures of a study: a module for each family of figures, and modules that they share."""
