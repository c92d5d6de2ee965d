"""What runs inside of the guest, as its first process. Only Python's standard library is there."""
