"""The Efficiency Frontier: retrieve, compress or send everything, given how often it is reused.

``calibrate`` measures strategies on a user's own questions, ``EfficiencyFrontier`` holds what
follows from it, ``ReuseLedger`` knows how often a context is asked.
"""

from ecs_plugins.common.lazy import public_face

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
