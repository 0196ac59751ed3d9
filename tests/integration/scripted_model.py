"""A chat model that answers from a script and remembers every prompt it received."""

from itertools import pairwise
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field


class ScriptedModel(BaseChatModel):
    """Replies are texts, messages or functions of the prompt; the last one is repeated."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    replies: list[Any] = Field(default_factory=lambda: ["Noted."])
    prompts: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def get_num_tokens(self, text: str) -> int:
        return len(text.split())

    @property
    def prompt(self) -> str:
        """All of the last prompt."""
        return "\n".join(str(message.text) for message in self.prompts[-1])

    @property
    def asked(self) -> str:
        """The last message of the last prompt."""
        return str(self.prompts[-1][-1].text)

    def _reply(self, messages) -> AIMessage:
        reply = self.replies[min(len(self.prompts), len(self.replies) - 1)]
        self.prompts.append(list(messages))
        if callable(reply):
            reply = reply(messages)
        if isinstance(reply, str):
            return AIMessage(reply)
        return reply.model_copy(update={"id": None})

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])


def call(name: str, /, **arguments) -> AIMessage:
    """A message that calls a tool."""
    requested = {"name": name, "args": arguments, "id": "c1", "type": "tool_call"}
    return AIMessage("", tool_calls=[requested])


def asked(text: str) -> dict[str, list[BaseMessage]]:
    """The state that an agent begins with."""
    return {"messages": [HumanMessage(text)]}


def texts_of(messages) -> list[str]:
    """Return the text of messages."""
    return [message.text for message in messages]


FACT = "My sister Quilla keeps bees in Tarrow."
QUESTION = "Where does my sister Quilla keep her bees?"

TALK = {
    "Where does my sister keep her bees?": "My sister Quilla keeps bees in Tarrow.",
    "And what did the vet say about Biscuit?": "The vet says that the paw of Biscuit heals.",
    "Which ferry did we take to the island?": "We took the ferry at nine to the island.",
    "Who lent me the ladder last autumn?": "Osric lent me the ladder last autumn.",
    "What was the name of the blue paint?": "The blue paint is called heliotrope.",
    "When is the choir practice this week?": "Choir practice is on Thursday at seven this week.",
}


def cached_share(prompts):
    """Return the length of the prefix that a prompt shares with the one before."""
    sent = ["".join(f"[{each.type}]{each.text}" for each in prompt) for prompt in prompts]
    shared = 0
    for pair in pairwise(sent):
        for before, after in zip(*pair, strict=False):
            if before != after:
                break
            shared += 1
    return shared / sum(map(len, sent[1:]))
