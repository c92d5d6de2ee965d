"""What is asked of many runs: enough seeds, two engines, a night, a paper again."""
