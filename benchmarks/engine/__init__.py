"""Cost of a log-probability: the scoring engine compared with the usual ways.

* ``workload``: the settings, the models and the requests.
* ``scorers``: the naive loop, lm-evaluation-harness, minicons, padded batches, and ours.
* ``target``: the device, the dtype, and what a second is there.
* ``measure``: interleaved repeats, ratios with intervals.
* ``floor``: what must be computed at least, at the rate of one large matrix product.
* ``absolute``: candidates per second, share of the device's peak, memory.
* ``serving``: wall time: many callers at once, and one request by its components.
* ``memory``: peak memory over the model, every scorer in a process of its own.
* ``soak``: many questions over many pools: memory stays flat, the cache in its budget.
* ``resident``: the process's memory beside the budget of what is kept.
* ``beside_encoder``: a first and a later question beside a cross-encoder.
* ``report``: tables and figures.
"""
