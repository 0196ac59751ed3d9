"""Servers that people have and that cannot score: what they are, and what works instead.

Everything here is made of the log-probabilities of a prompt's own tokens. SGLang and vLLM return
them; llama.cpp's server, Ollama and LM Studio return those of the tokens that they write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import RootModel

from ecs_plugins.errors import ConfigurationError, ModelError
from ecs_plugins.lm.remote.client import PassingFault
from ecs_plugins.lm.remote.dialects import ServerInfo, ServerRequest


class ForeignServer(NamedTuple):
    """A kind of server that cannot score.

    Attributes:
        name: How people call it.
        owner: The owner of models in its list of them.
        path: A path that it knows.
        key: What its answer there has; some servers answer to every path.
    """

    name: str
    owner: str
    path: str
    key: str


FOREIGN = (
    ForeignServer("llama.cpp's server", "llamacpp", "/props", "default_generation_settings"),
    ForeignServer("Ollama", "library", "/api/tags", "models"),
    ForeignServer("LM Studio", "organization_owner", "/api/v0/models", "data"),
)
_SCORING = {"sglang", "vllm"}

Asking = Callable[[ServerRequest[Any]], Any]
"""Sends a request to the one server that is meant."""


def refuse_foreign(url: str, info: ServerInfo, asking: Asking) -> None:
    """Refuse a server that cannot score, with what works instead.

    Args:
        url: Its address.
        info: Its list of models.
        asking: Asks it something.

    Raises:
        ConfigurationError: It is one of `FOREIGN`.
    """
    server = _recognised(info, asking)
    if server is not None:
        raise ConfigurationError(
            f"{url} is {server.name}, which can write answers (through LangChain or LlamaIndex) "
            "but returns no log-probabilities of a prompt's tokens: to score, serve the original "
            "model with SGLang or vLLM, or load its files with LocalLM.from_pretrained"
        )


def _recognised(info: ServerInfo, asking: Asking) -> ForeignServer | None:
    owners = {served.owned_by for served in info.data}
    if not owners.isdisjoint(_SCORING):
        return None
    for server in FOREIGN:
        # Models that a user made have another owner.
        if server.owner in owners or _knows(server, asking):
            return server
    return None


def _knows(server: ForeignServer, asking: Asking) -> bool:
    """Whether the server that is asked knows the path of a kind of server."""
    request = ServerRequest(server.path, RootModel[dict[str, Any]], lambda answer: answer.root)
    try:
        answer: dict[str, Any] = asking(request)
    except (ConfigurationError, ModelError, PassingFault):
        return False
    return server.key in answer
