"""The texts of the demo and the questions about them: files in ``examples/demo/corpus``.

Help pages, notes of meetings and a chat of a tool library, written for this demo. The questions
were written with them, before any method ran. The weights that fuse rankers were learned on another
corpus, ``benchmarks/datasets/help_centre.json``.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

from ecs_plugins.errors import StorageError

FOLDER = Path(__file__).with_name("corpus")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the titles of all passages that its answer needs."""

    question: str
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the chat."""

    date: str
    said: str


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A question about the chat, and words of the turn that answers it."""

    question: str
    words: str

    def answered_by(self, text: str) -> bool:
        """Return True if a text holds the answer."""
        return self.words in text


@dataclass(frozen=True, slots=True)
class Shown:
    """A question, a true answer to it, and one with a wrong number; written by hand."""

    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Passages by title, the chat, and the questions.

    Attributes:
        passages: Title -> text with its title.
        ordinary: Questions whose answer stands in one passage.
        multi_hop: Questions that need two passages.
    """

    passages: dict[str, str]
    ordinary: tuple[Asked, ...]
    multi_hop: tuple[Asked, ...]
    chat: tuple[Turn, ...]
    chat_questions: tuple[ChatQuestion, ...]
    shown: Shown

    @property
    def questions(self) -> tuple[Asked, ...]:
        """Return the questions about passages."""
        return (*self.ordinary, *self.multi_hop)


def load_corpus(seed: int = 0, folder: Path = FOLDER) -> Corpus:
    """Read the corpus, with its passages in an order drawn by a seed.

    Raises:
        StorageError: A file is missing.
    """
    try:
        pages = "".join((folder / name).read_text("utf-8") for name in ("help.md", "meetings.md"))
        talk = (folder / "chat.txt").read_text("utf-8")
        asked = json.loads((folder / "questions.json").read_text("utf-8"))
    except OSError as error:
        raise StorageError(f"{error.filename} is missing; run the demo in a checkout") from error
    sections = re.findall(r"^## (.+)\n(.+)$", pages, re.MULTILINE)
    random.Random(seed).shuffle(sections)
    turns = []
    for line in talk.splitlines():
        date, _, said = line.partition(" ")
        turns.append(Turn(date, said))
    ordinary, multi_hop = (
        tuple(Asked(each["question"], frozenset(each["sources"])) for each in asked[kind])
        for kind in ("ordinary", "multi_hop")
    )
    return Corpus(
        {title: f"{title}: {text}" for title, text in sections},
        ordinary,
        multi_hop,
        tuple(turns),
        tuple(ChatQuestion(each["question"], *each["evidence"]) for each in asked["chat"]),
        Shown(asked["shown"]["question"], tuple(asked["shown"]["answers"])),
    )
