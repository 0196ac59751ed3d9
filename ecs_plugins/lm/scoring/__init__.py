"""Computation of log-probabilities: a reference path, and fast paths compared with it.

* ``padded``: the reference, padded batches, and packed rows under a tree mask.
* ``packed``: every prefix once, all paths after it packed without padding (``pack_items``,
  ``forest``). Attention follows a plan, ``cascade`` on a processor and ``varlen`` on a card, in a
  ``twin`` of the model; a model that needs its own attention gets a tree mask.
* ``prefix``: the cache between calls, in an ``arena``; ``packs``: work under a token budget.
* ``planner``: choice of the path by ``profile`` and ``check``; ``model_watch``: its changes.
"""
