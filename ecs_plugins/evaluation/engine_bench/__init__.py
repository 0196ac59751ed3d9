"""What a log-probability costs: the scoring engine beside the usual ways of computing it.

* ``workload``: the settings, the models and the requests.
* ``scorers``: the naive loop, lm-evaluation-harness, minicons, padded batches, and ours.
* ``measure``: interleaved repeats in process CPU time, ratios with intervals, the floor.
* ``serving``: wall time: many callers at once, and one request by its components.
* ``memory``: peak memory over the model, every scorer in a process of its own.
* ``report``: tables and figures.
"""
