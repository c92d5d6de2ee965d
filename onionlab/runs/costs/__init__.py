"""What runs cost before they are made: CPU time, wall time, memory and disk."""
