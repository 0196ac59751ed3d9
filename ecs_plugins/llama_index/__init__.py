"""LlamaIndex: shaping, memory and routing as its own parts. Importing this loads no framework."""

from ecs_plugins.common.lazy import public_face

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
