"""How log-probabilities are computed: one plain reference path and the fast ones held to it.

* ``reference``: one forward per candidate and continuation, no cache; the yardstick.
* ``shared_prefix``: the prefix once, everything behind it packed as trees of tokens.
* ``padded``: right-padded batches without a cache, for models that cannot share a prefix.
* ``planner``: which of them, under which token budget, and the self-check.
"""
