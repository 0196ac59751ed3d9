"""Task of parts 1 and 3: questions over this project's own documentation.

``examples/data/handbook.json`` has 75 paragraphs of November 2026 and 54 questions of a newcomer,
each with the words of its answer. The questions were written before any method ran on them. A
question counts as answered if these words are in the kept passages.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from ecs_plugins.errors import StorageError

FILE = Path(__file__).parents[1] / "data" / "handbook.json"


@dataclass(frozen=True, slots=True)
class Asked:
    """Question and the words of its answer."""

    question: str
    answer: str

    def answered_by(self, text: str) -> bool:
        """Return True if a text contains the answer."""
        return self.answer.lower() in text.lower()


@dataclass(frozen=True, slots=True)
class Handbook:
    """Passages with titles, and questions about them."""

    passages: tuple[str, ...]
    questions: tuple[Asked, ...]

    def drawn(self, limit: int, seed: int) -> Handbook:
        """Return questions and an order of passages, drawn by a seed."""
        chance = random.Random(seed)
        passages = list(self.passages)
        chance.shuffle(passages)
        count = min(limit, len(self.questions))
        return Handbook(tuple(passages), tuple(chance.sample(self.questions, count)))


def load_handbook(file: Path = FILE) -> Handbook:
    """Read passages and questions.

    Raises:
        StorageError: The file is missing.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{file} is missing; run the demo in a checkout") from error
    passages = [f"{each['title']}: {each['text']}" for each in data["passages"]]
    questions = [Asked(each["question"], each["answer"]) for each in data["questions"]]
    return Handbook(tuple(passages), tuple(questions))
