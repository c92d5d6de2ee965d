"""Whether the statistics keep what they promise: simulation on data with a known truth.

Runs are drawn from a model (a seed's own network, the run's own noise, metrics that go together)
and handed to the code that judges real ones. Every rate comes with its Monte-Carlo error; a promise
is broken where the rate is beyond its limit by more than ``rows.SURE`` of these.
"""
