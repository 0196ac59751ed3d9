"""Cost of a log-probability: the scoring engine compared with the usual ways.

* ``workload``: the settings, the models and the requests.
* ``scorers``: the naive loop, padded batches, and ours.
* ``target``: the device, the dtype, and what a second is there.
* ``measure``: interleaved repeats, ratios with intervals.
* ``floor``: what must be computed at least, at the rate of one large matrix product.
* ``serving``: wall time of many callers at once.
* ``soak``: many questions over many pools: memory stays flat, the cache in its budget.
* ``beside_encoder``: a first and a later question beside a cross-encoder.
* ``report``: tables.
"""
