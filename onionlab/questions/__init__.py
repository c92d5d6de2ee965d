"""What is asked of many runs: enough networks, two engines, a night, a paper again."""
