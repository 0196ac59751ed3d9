"""Judge of outdated memories that asks a LangChain chat model."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from ecs_plugins.memory import outdating
from ecs_plugins.memory.outdating import OutdatingVerdict


class ChatModelJudge(outdating.ChatModelJudge):
    """Judge of outdated memories that asks a LangChain chat model, once per new message.

    ```python
    memory = EntropicMemory.open("agent.db", judge=ChatModelJudge(model))
    ```

    A model that can call tools answers in structured output; others are asked for JSON.

    Args:
        model: The chat model.
        name: Recorded with every verdict; None is the class of the model.
    """

    def __init__(self, model: BaseChatModel, *, name: str | None = None) -> None:
        self._model = model
        super().__init__(self._asked, name=name or type(model).__name__)

    def _asked(self, prompt: str, schema: type[OutdatingVerdict]) -> Any:
        try:
            structured = self._model.with_structured_output(schema)
        except NotImplementedError:  # a model without tools
            form = json.dumps(schema.model_json_schema())
            message = HumanMessage(f"{prompt}\nAnswer with JSON of this schema alone:\n{form}")
            text = self._model.invoke([message]).text
            start, end = text.find("{"), text.rfind("}")
            return text[start : end + 1]
        return structured.invoke([HumanMessage(prompt)])
