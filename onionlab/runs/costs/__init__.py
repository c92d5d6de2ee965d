"""Estimates of what runs will cost: CPU time, wall time, memory and disk."""
