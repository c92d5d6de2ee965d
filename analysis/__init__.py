"""From the logs of a run to records, metrics, estimates, verdicts, figures and pages.

The subpackages in the order of the data flow: ``formats`` (what a study and a record say of
themselves), ``celltrace`` and ``records`` (logs to tables), ``measures`` (tables to one run's
metrics), ``inference`` (arrays to intervals and tests), ``judgement`` (runs to estimates, verdicts
and answers to claims), ``comparison`` (two sets of runs), ``figures``, ``pages``, ``imports``
(other people's results). Each imports only those before it; docs/architecture.md has the picture.
Metrics and their formulas: docs/reference/metrics.md; what is concluded from them and how:
docs/reference/statistics.md.
"""
