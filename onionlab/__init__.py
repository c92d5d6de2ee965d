"""Experiment harness for Tor performance research: from a plan to runs of real Tor networks."""

__version__ = "0.3.0"
