"""The embedded engine: User-Mode Linux in simulated time."""
