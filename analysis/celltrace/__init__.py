"""Cell traces: when each cell passed through a relay, and what it waited for.

docs/explanation/celltrace.md says what is measured, and why.

file -> events (``events``) -> cells (``cells``) -> statistics (``statistics``); and, across relays,
the way of a download's first byte (``paths``).
"""
