"""Questions that need many runs: more networks, two engines, a nightly, a paper's figures."""
