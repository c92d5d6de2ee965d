"""Cell traces: the times at which each cell passed through a relay, and what it waited for.

docs/explanation/celltrace.md describes the measurement and its purpose. The data flow is: file ->
events (``events``) -> cells (``cells``) -> statistics (``statistics``). ``cell_paths`` follows the
first byte of a download across relays.
"""
