"""From many runs to verdicts: estimates, margins, what was shown, and the answers to claims."""
