"""Commands that need many runs: adding networks, comparing engines, nightlies, and papers."""
