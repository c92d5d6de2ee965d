"""Tor: its source, the variants of it, their builds and their own tests."""
