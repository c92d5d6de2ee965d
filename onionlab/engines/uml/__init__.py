"""The embedded engine: User-Mode Linux, a Linux kernel that runs as a process, in virtual time.

engine.py runs the kernel on the host. guest/ contains the code that runs inside the kernel. This
code imports this package as well, so the import must be cheap and need only the standard library.
"""
