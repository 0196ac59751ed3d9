"""Entropic Memory: a bounded memory whose items compete by free energy.

Importing this package loads neither torch nor faiss nor scikit-learn.
"""

from ecs_plugins.common.lazy import public_face

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
