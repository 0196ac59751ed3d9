"""The same `LanguageModel` over HTTP, for those who outgrow one machine.

The engines exist: SGLang and vLLM. This package encodes with a local tokenizer, sends token
ids to the servers that it was given and to nobody else, and checks what comes back.
"""

from ecs_plugins.common.lazy import public_face

__getattr__, __dir__, __all__ = public_face(__name__, __file__)
