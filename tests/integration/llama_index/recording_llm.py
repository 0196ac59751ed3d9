"""A function-calling LLM that answers from a script and remembers every prompt it received."""

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM


class Recorder:
    """Replies are texts, messages or functions of the prompt; the last one is repeated."""

    def __init__(self, *replies) -> None:
        self.replies = replies or ("Noted.",)
        self.prompts: list[list[ChatMessage]] = []
        self.llm = MockFunctionCallingLLM(response_generator=self._reply, is_chat_model=True)

    def _reply(self, messages, **kwargs) -> ChatMessage:
        reply = self.replies[min(len(self.prompts), len(self.replies) - 1)]
        self.prompts.append(list(messages))
        if callable(reply):
            reply = reply(messages)
        if isinstance(reply, str):
            return ChatMessage(role="assistant", content=reply)
        return reply.model_copy(deep=True)

    @property
    def prompt(self) -> str:
        """All text of the last prompt."""
        return "\n".join(str(message.content) for message in self.prompts[-1])


def call(name: str, **arguments) -> ChatMessage:
    """A message that calls a tool."""
    block = ToolCallBlock(tool_call_id="c1", tool_name=name, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[TextBlock(text=""), block])
