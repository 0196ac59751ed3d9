"""Questions in people's own words: StackExchange FAQ, MTRAG, and the project's help centre.

| data set | units | evidence |
|---|---|---|
| faq | the first answer of every thread | the thread that a question paraphrases |
| mtrag | passages that any task of a collection needs | passages that the task needs |
| help | the answers of `help_centre.json` | the answer that a question was written for |
| chats | turns of all its conversations of two | the turn that answers |
| groups | turns of `group_chats.json`, several people over weeks | the turn that answers |

Of MTRAG only tasks that are no follow-up and have a relevant passage count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.errors import InvalidInputError

PASSAGE_CHARACTERS = 500
"""Characters of a passage of MTRAG."""
ANSWER_CHARACTERS = 600
"""Characters of an answer of the FAQ."""


def read_own_words(name: str, path: Path | None = None) -> list[EvidenceQuestion]:
    """Read a data set of `READERS`; ``help``, ``chats`` and ``groups`` need no path.

    Raises:
        InvalidInputError: The file is not of this data set.
    """
    own = resources.files("benchmarks.datasets").joinpath(
        "group_chats.json" if name == "groups" else "help_centre.json"
    )
    text = own.read_text("utf-8") if path is None else path.read_text("utf-8")
    try:
        return list(READERS[name](json.loads(text)))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise InvalidInputError(f"{path} does not look like {name}: {error}") from error


def _faq(threads: Any) -> Iterator[EvidenceQuestion]:
    units = tuple(_short(thread["answers"][0], ANSWER_CHARACTERS) for thread in threads)
    for place, thread in enumerate(threads):
        for number, question in enumerate(thread["questions"]):
            name = f"{place}/{number}"
            yield EvidenceQuestion(name, question, (), units, (place,), thread["title"])


def _mtrag(data: Mapping[str, Any]) -> Iterator[EvidenceQuestion]:
    wanted: dict[str, set[str]] = {}
    for task in data["tasks"]:
        wanted.setdefault(task["collection"], set()).update(task["relevant"])
    for task in data["tasks"]:
        if len(task["turns"]) > 1 or not task["relevant"]:
            continue
        names = sorted(wanted[task["collection"]])
        yield EvidenceQuestion(
            task["task_id"],
            task["turns"][-1]["text"],
            (),
            tuple(_short(data["documents"][name], PASSAGE_CHARACTERS) for name in names),
            tuple(sorted(names.index(name) for name in task["relevant"])),
            task["task_id"],
            task["collection"],
        )


def _help(data: Mapping[str, Any]) -> Iterator[EvidenceQuestion]:
    units = tuple(entry["answer"] for entry in data["entries"])
    for place, entry in enumerate(data["entries"]):
        for number, question in enumerate(entry["questions"]):
            name = f"{place}/{number}"
            yield EvidenceQuestion(name, question, (), units, (place,), entry["title"])


def _chats(data: Mapping[str, Any]) -> Iterator[EvidenceQuestion]:
    turns = tuple(turn for chat in data["conversations"] for turn in chat["turns"])
    first = 0
    for chat in data["conversations"]:
        for number, each in enumerate(chat["questions"]):
            evidence = tuple(first + place for place in each["evidence"])
            name = f"{chat['name']}/{number}"
            yield EvidenceQuestion(name, each["question"], (), turns, evidence, chat["name"])
        first += len(chat["turns"])


def _short(text: str, characters: int) -> str:
    return " ".join(text.split())[:characters]


READERS: Mapping[str, Callable[[Any], Iterator[EvidenceQuestion]]] = {
    "faq": _faq,
    "mtrag": _mtrag,
    "help": _help,
    "chats": _chats,
    "groups": _chats,
}
