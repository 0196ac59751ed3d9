"""A local `LanguageModel` as a LangChain chat model: the weights that score can also answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict
from typing_extensions import override

from ecs_plugins._async import run_sync
from ecs_plugins._integration import as_model
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.answering import LocalAnswerModel


class ChatLocalLM(BaseChatModel):
    """Answers one turn with a local model, greedily, and reports the tokens it used.

    Lays a prompt out as calibration does, so that what was measured holds for it. It takes
    system and human messages, no history and no tools.

    Attributes:
        model: A `LanguageModel`, a name or directory, or None for the bundled model.
        max_new_tokens: Longest reply.
    """

    model: Any = None
    max_new_tokens: int = 24

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @property
    @override
    def _llm_type(self) -> str:
        return "ecs-plugins-local"

    @property
    def model_name(self) -> str:
        """Name of the model behind; loads it."""
        return as_model(self.model).name

    @classmethod
    @override
    def is_lc_serializable(cls) -> bool:
        """Whether `langchain_core.load.dumps` writes it: yes, as its configuration."""
        return True

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        model = LocalAnswerModel(as_model(self.model))
        turn = _turn(messages)
        (made,) = model.complete([turn], max_new_tokens=self.max_new_tokens)
        text = made.text
        for mark in stop or ():
            text = text.partition(mark)[0]
        message = AIMessage(
            text,
            usage_metadata=UsageMetadata(
                input_tokens=made.input_tokens,
                output_tokens=made.output_tokens,
                total_tokens=made.input_tokens + made.output_tokens,
            ),
            response_metadata={"model_name": model.name},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await run_sync(self._generate, messages, stop, None, **kwargs)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text by the model's own tokenizer."""
        return as_model(self.model).count_tokens(texts)


def _turn(messages: Sequence[BaseMessage]) -> str:
    for message in messages:
        if not isinstance(message, HumanMessage | SystemMessage):
            raise InvalidInputError(
                f"ChatLocalLM answers one turn and takes no {type(message).__name__}; use a chat "
                "model of your provider for conversations and tools"
            )
    return "\n\n".join(str(message.text) for message in messages)
