"""Analysis of runs, from logs to records, metrics, estimates, verdicts, figures and pages.

In the order of the data flow, the subpackages are: ``formats`` (files of studies and records),
``celltrace`` and ``records`` (logs to tables), ``measures`` (tables to the metrics of a run),
``inference`` (arrays to intervals and tests), ``judgement`` (runs to estimates, verdicts and
answers to claims), ``comparison`` (two sets of runs), ``figures``, ``pages``, and ``imports``
(results of other tools). A subpackage imports only earlier ones; see docs/architecture.md.
docs/reference/metrics.md defines the metrics. docs/reference/statistics.md defines how conclusions
are drawn from them.
"""
