"""From tgen logs to records, estimates, figures and a report.

The data's way: ``tgenlog`` (lines to events) -> ``records`` (events to tables) -> ``metrics`` and
``survival`` (arrays to one run's statistics) -> ``estimates`` and ``verdicts`` (runs to variants)
-> ``figures`` and ``report``. Metrics and their formulas: docs/reference/metrics.md; what is
concluded from them and how: docs/reference/statistics.md.
"""
