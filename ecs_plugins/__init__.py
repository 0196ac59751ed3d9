"""Context shaping, bounded memory and cost-aware routing on one local language model.

Importing this package loads neither torch nor a framework; names are resolved on first access.
The integrations are packages of their own: `ecs_plugins.langchain`, `ecs_plugins.langgraph` and
`ecs_plugins.llama_index`.
"""

from ecs_plugins.common.lazy import public_face

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
