"""Is this model fit for context shaping? Answered by measurement, on a user's own examples.

* ``examples``: labelled examples and where they are read from.
* ``observe``: every signal on every passage, on unrelated passages, and its numeric noise.
* ``statistics``: distributions, AUC, thresholds held out by cross-validation; pure functions.
* ``result``: `ModelDiagnostics`, what follows from them; ``report`` puts it into words.
* ``artefact``: versioned JSON.
"""
