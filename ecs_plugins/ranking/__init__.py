"""Lexical and semantic rankers, written once for all engines."""

from ecs_plugins.common.lazy import public_face

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
