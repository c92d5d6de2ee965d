"""Third-party programs: locate them on this machine, or fetch, patch and build their source."""
