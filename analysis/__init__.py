"""Analysis of runs, from logs to records, metrics, estimates, verdicts, figures and pages.

The subpackages, in the order of the data flow: ``formats`` (files of studies and records),
``celltrace`` and ``records`` (logs to tables), ``measures`` (tables to the metrics of a run),
``inference`` (arrays to intervals and tests), ``judgement`` (runs to estimates, verdicts and
answers to claims), ``comparison`` (two sets of runs), ``figures``, ``pages``, ``imports`` (results
of other tools). Each imports only those before it; see docs/architecture.md.
docs/reference/metrics.md defines the metrics, and docs/reference/statistics.md the conclusions
drawn from them.
"""
