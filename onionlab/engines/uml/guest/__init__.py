"""The code of the guest's first process. It can import only Python's standard library."""
