"""Figures of a study: one module for each family of measures."""
