"""Generate a network from an experiment's settings and a seed."""
