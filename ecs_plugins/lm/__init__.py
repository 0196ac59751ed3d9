"""Local and remote language models with one protocol, `LanguageModel`."""

from ecs_plugins.common.lazy import public_face

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
