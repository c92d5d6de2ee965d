"""The embedded engine: User-Mode Linux in time-travel mode."""
