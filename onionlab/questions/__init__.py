"""Tasks that need many runs, such as a nightly run, a bisection, or a comparison of engines."""
