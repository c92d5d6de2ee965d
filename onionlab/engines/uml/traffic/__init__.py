"""One process in the place of all TGen clients and servers of a simulation.

It reads the graphs that TGen would read, speaks TGen 1.1.2's protocol on the wire and writes TGen's
log lines, so that neither Tor nor the analysis can tell the two apart. Only the standard library is
used, and nothing is computed twice per byte: inside User-Mode Linux each system call costs as much
as hundreds of steps of Python. How to start it: ``__main__.py``.
"""
