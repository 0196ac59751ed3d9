"""Conversation in ``examples/data`` and the questions about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ecs_plugins.errors import StorageError

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True)
class Turn:
    """Message of the conversation."""

    id: str
    date: str
    speaker: str
    text: str

    @property
    def said(self) -> str:
        """Return the text with its speaker."""
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Question:
    """Question, its true answer, and the ids of every turn that states it."""

    question: str
    answer: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chat:
    """Conversation in dated sessions, and questions about it."""

    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]
    sessions: int


def load_chat(folder: Path = DATA) -> Chat:
    """Read the conversation.

    Raises:
        StorageError: A file is missing.
    """
    try:
        talk = json.loads((folder / "conversation.json").read_text(encoding="utf-8"))
        asked = json.loads((folder / "questions.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(
            f"the example data are missing ({error.filename}); run the demo in a checkout"
        ) from error
    turns = [
        Turn(turn["id"], session["date"], turn["speaker"], turn["text"])
        for session in talk["sessions"]
        for turn in session["turns"]
    ]
    questions = [
        Question(each["question"], each["answer"], tuple(each["evidence"]))
        for each in asked["conversation"]
    ]
    return Chat(tuple(turns), tuple(questions), len(talk["sessions"]))
