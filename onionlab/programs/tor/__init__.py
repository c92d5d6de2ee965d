"""Tor: its source, its variants, their builds and Tor's own tests."""
