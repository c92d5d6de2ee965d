"""Experiment harness for Tor performance research: runs real Tor in simulated networks."""

__version__ = "0.3.0"
