"""Entropic Context Shaping: which passages help to answer a question, and which hurt."""

from ecs_plugins.common.lazy import public_face

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
