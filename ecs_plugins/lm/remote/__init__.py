"""The same `LanguageModel` over HTTP, for those who outgrow one machine.

The engines exist: SGLang and vLLM. This package encodes with a local tokenizer, sends token
ids to the servers that it was given and to nobody else, and checks what comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.lm.remote.model import RemoteLM as RemoteLM
    from ecs_plugins.lm.remote.options import RemoteOptions as RemoteOptions

_EXPORTS = {"RemoteLM": ".model", "RemoteOptions": ".options"}

__all__ = ["RemoteLM", "RemoteOptions"]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS, extra="remote", requires=("httpx",))


def __dir__() -> list[str]:
    return sorted(__all__)
