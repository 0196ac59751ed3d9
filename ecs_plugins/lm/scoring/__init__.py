"""How log-probabilities are computed: one plain reference path and the fast ones held to it.

* ``plain``: the reference, padded batches, and packed rows under a tree mask.
* ``packed``: every prefix once, what follows it packed without padding (``items``, ``forest``);
  attention by a plan of ``cascade`` on a processor and ``varlen`` on a card, through a ``twin`` of
  the model, or, where a model needs its own attention, under a tree mask.
* ``prefix``: what is kept between calls, in an ``arena``; ``packs``: what happens when memory ends.
* ``planner``: which path, after ``profile`` and ``check``; ``changes``: of what is still the case.
"""
