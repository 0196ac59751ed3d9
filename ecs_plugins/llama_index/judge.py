"""Judge of outdated memories that asks a LlamaIndex LLM."""

from __future__ import annotations

from typing import Any

from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate

from ecs_plugins.memory import outdating
from ecs_plugins.memory.outdating import OutdatingVerdict


class ChatModelJudge(outdating.ChatModelJudge):
    """Judge of outdated memories that asks a LlamaIndex LLM, once per new message.

    ```python
    memory = EntropicMemory.open("agent.db", judge=ChatModelJudge(llm))
    ```

    Args:
        llm: The LLM.
        name: Recorded with every verdict; None is the name of the model.
    """

    def __init__(self, llm: LLM, *, name: str | None = None) -> None:
        self._llm = llm
        super().__init__(self._asked, name=name or llm.metadata.model_name)

    def _asked(self, prompt: str, schema: type[OutdatingVerdict]) -> Any:
        return self._llm.structured_predict(schema, PromptTemplate("{task}"), task=prompt)
