"""Two sets of runs side by side, what differs between them, and the history of nights."""
