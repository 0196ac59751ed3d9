"""How log-probabilities are computed: one plain reference path and the fast ones held to it.

* ``reference``: one forward per candidate and continuation, no cache; the yardstick.
* ``packed``: every prefix once, what follows it packed without padding; attention by ``cascade``
  or, where a model needs its own attention, under a tree mask (``masked``).
* ``padded``: right-padded batches without a cache, for models that cannot share a prefix.
* ``planner``: which of them, under which token budget, and the self-check.
"""
