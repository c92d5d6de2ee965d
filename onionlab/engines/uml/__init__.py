"""The embedded engine: User-Mode Linux, a Linux kernel as an ordinary process, in virtual time.

engine.py runs the kernel on the host; guest/ contains the code that runs inside. Imports of this
package must be cheap: the guest, which has only the standard library, imports it, too.
"""
