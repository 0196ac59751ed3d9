"""How log-probabilities are computed: one plain reference path and the fast ones held to it.

* ``plain``: the reference, padded batches, and packed rows under a tree mask.
* ``packed``: every prefix once, what follows it packed without padding; attention by ``cascade``
  or, where a model needs its own attention, under a tree mask.
* ``planner``: which of them, under which token budget, and the self-check.
"""
