"""Estimates, margins, verdicts, and answers to claims, from many runs."""
