"""Plan runs, perform them, keep finished runs in a store, and pack them into files."""
