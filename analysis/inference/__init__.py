"""Statistics of plain arrays: intervals, bands, tests, stopping rules and change points."""
