"""The embedded engine: User-Mode Linux, a Linux kernel as an ordinary process, in virtual time.

engine.py runs it from the host's side; guest/ is what runs inside of it. Importing this package
costs nothing: the guest imports it too, with nothing but the standard library at hand.
"""
