"""Long chats with questions, turn by turn: two data sets, and the cache of embeddings.

LoCoMo (Maharana et al., 2024) marks for every question the turns that hold its answer. Which
questions an agent has been asked before the chat ends, and which it will be asked, is decided
here, by the time of their evidence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from ecs_plugins.common.files import read_text
from ecs_plugins.common.text import as_reply, asked_at_end, same_speaker
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.ranking.embedder import Embedder, Vectors

Split = Literal["chronological", "interleaved", "end"]

ADVERSARIAL = 5
"""LoCoMo's category of questions without evidence."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message.

    Attributes:
        id: Its name in the data set.
        session: Number of the session that it belongs to, from 0.
        text: Who said it, and what.
    """

    id: str
    session: int
    text: str


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A question about a chat.

    Attributes:
        text: The question.
        answer: Its answer.
        evidence: Positions of the turns that hold the answer, ascending; at least one.
        category: LoCoMo's: 1 multi-hop, 2 temporal, 3 open domain, 4 single-hop.
    """

    text: str
    answer: str
    evidence: tuple[int, ...]
    category: int

    @property
    def known_at(self) -> int:
        """Position of the turn from which on it can be answered."""
        return self.evidence[-1]


@dataclass(frozen=True)
class Chat:
    """A conversation with questions, in the order of their evidence.

    Attributes:
        id: Its name in the data set.
        turns: In the order in which they were said.
        questions: In the order in which they can be answered.
        by_session: Whether sessions are to be found, each by any of its turns.
    """

    id: str
    turns: tuple[ChatTurn, ...]
    questions: tuple[ChatQuestion, ...]
    by_session: bool = False

    @cached_property
    def read(self) -> tuple[str, ...]:
        """Every turn as the memory reads it: behind the question that it replies to, if any."""
        replies = (
            as_reply(turn.text, asked_at_end(before.text))
            if before.session == turn.session and not same_speaker(before.text, turn.text)
            else turn.text
            for before, turn in pairwise(self.turns)
        )
        return (*(turn.text for turn in self.turns[:1]), *replies)

    def split(self, split: Split) -> tuple[tuple[ChatQuestion, ...], tuple[ChatQuestion, ...]]:
        """Return the questions asked while the chat goes on, and those asked at its end.

        Args:
            split: ``chronological``: the half whose evidence comes first is asked on the way,
                so what is asked at the end is about the later part of the chat.
                ``interleaved``: every other question, so both halves are about all of it.
                ``end``: nothing is asked on the way, everything at the end.
        """
        if split == "end":
            return (), self.questions
        if split == "interleaved":
            return self.questions[::2], self.questions[1::2]
        half = len(self.questions) // 2
        return self.questions[:half], self.questions[half:]

    def asked_after(self, seen: Iterable[ChatQuestion]) -> dict[int, list[ChatQuestion]]:
        """Return the turn after which each question is asked: the last one of its session."""
        last = {turn.session: position for position, turn in enumerate(self.turns)}
        out: dict[int, list[ChatQuestion]] = {}
        for question in seen:
            out.setdefault(last[self.turns[question.known_at].session], []).append(question)
        return out


def read_chats(path: Path, limit: int | None = None) -> list[Chat]:
    """Read the JSON file of LoCoMo or of LongMemEval.

    Questions without evidence in the chat, and those about what was never said, are left out.
    LongMemEval names the sessions that hold an answer; they become the question's evidence.

    Args:
        path: The file.
        limit: Only so many conversations, in file order.

    Raises:
        StorageError: It cannot be read.
        InvalidInputError: It has another format, or holds no question with evidence.
    """
    text = read_text(path)
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
    if not isinstance(records, list):
        raise InvalidInputError(f"{path}: expected a list of conversations, as LoCoMo has it")
    chats = []
    for number, record in enumerate(records[:limit]):
        try:
            chats.append(
                _history(record) if "haystack_sessions" in record else _chat(record, number)
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(
                f"{path}, record {number}: neither of LoCoMo nor of LongMemEval ({error!r})"
            ) from error
    if not any(chat.questions for chat in chats):
        raise InvalidInputError(f"{path}: no question with evidence among the turns")
    return chats


def _chat(record: Mapping[str, object], number: int) -> Chat:
    talk = record["conversation"]
    assert isinstance(talk, dict)
    names = sorted(
        (name for name in talk if re.fullmatch(r"session_\d+", name)),
        key=lambda name: int(name.rpartition("_")[2]),
    )
    turns = tuple(
        ChatTurn(str(turn["dia_id"]), session, f"{turn['speaker']}: {turn['text']}")
        for session, name in enumerate(names)
        for turn in talk[name]
    )
    position = {turn.id: at for at, turn in enumerate(turns)}
    questions = []
    entries = record["qa"]
    assert isinstance(entries, list)
    for entry in entries:
        # Some entries name several turns in one string.
        named = re.findall(r"D\d+:\d+", " ".join(map(str, entry.get("evidence") or ())))
        evidence = tuple(sorted({position[name] for name in named if name in position}))
        if evidence and entry.get("category") != ADVERSARIAL and "answer" in entry:
            questions.append(
                ChatQuestion(
                    str(entry["question"]), str(entry["answer"]), evidence, int(entry["category"])
                )
            )
    questions.sort(key=lambda question: (question.known_at, question.text))
    return Chat(str(record.get("sample_id", number)), turns, tuple(questions))


def _history(record: Mapping[str, Any]) -> Chat:
    """An assistant's history of LongMemEval, its sessions in the order of their dates."""
    columns = ("haystack_dates", "haystack_session_ids", "haystack_sessions")
    sessions = sorted(zip(*(record[name] for name in columns), strict=True), key=lambda s: s[:2])
    turns: list[ChatTurn] = []
    behind: dict[str, range] = {}
    for number, (_, name, said) in enumerate(sessions):
        behind[name] = range(len(turns), len(turns) + len(said))
        turns += [
            ChatTurn(f"{name}:{at}", number, f"{turn['role']}: {turn['content']}")
            for at, turn in enumerate(said)
        ]
    # The published file repeats the history in every question; here it may have several.
    entries = record.get("questions", [record])
    questions = [
        ChatQuestion(str(entry["question"]), str(entry["answer"]), tuple(sorted(evidence)), 0)
        for entry in entries
        if (evidence := {at for name in entry["answer_session_ids"] for at in behind.get(name, ())})
    ]
    questions.sort(key=lambda question: (question.known_at, question.text))
    identity = str(entries[0]["question_id"])
    return Chat(identity, tuple(turns), tuple(questions), by_session=True)


def beginning(chat: Chat, turns: int) -> Chat:
    """Return the chat up to a number of turns, with the questions that can be answered by then."""
    questions = tuple(each for each in chat.questions if each.known_at < turns)
    return replace(chat, turns=chat.turns[:turns], questions=questions)


class CachedEmbedder:
    """Embedder with a cache on disk.

    Args:
        inner: Embeds what is not known yet.
        file: Where the vectors are kept between runs; None keeps them in memory only.
    """

    def __init__(self, inner: Embedder, file: Path | None = None) -> None:
        self._inner = inner
        self._file = file
        self._known: dict[str, Vectors] = {}
        if file is not None and file.is_file():
            self._read(file)

    @property
    def name(self) -> str:
        """Return the value of the inner embedder."""
        return self._inner.name

    @property
    def dimension(self) -> int:
        """Return the value of the inner embedder."""
        return self._inner.dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape ``[len(texts), dimension]``."""
        keys = [_key("document", text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if new:
            vectors = self._inner.embed_documents(list(new.values()))
            self._known.update(zip(new, vectors, strict=True))
        if not keys:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([self._known[key] for key in keys])

    def embed_query(self, text: str) -> Vectors:
        """A unit vector, shape ``[dimension]``."""
        key = _key("query", text)
        if key not in self._known:
            self._known[key] = self._inner.embed_query(text)
        return self._known[key]

    def save(self) -> None:
        """Write the cache to its file."""
        if self._file is not None and self._known:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(
                self._file,
                embedder=np.array(self.name),
                keys=np.array(list(self._known)),
                vectors=np.stack(list(self._known.values())),
            )

    def _read(self, file: Path) -> None:
        try:
            with np.load(file, allow_pickle=False) as stored:
                if str(stored["embedder"]) != self.name:
                    return
                self._known = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise StorageError(f"{file} is no cache of embeddings; delete it: {error}") from error


def _key(kind: str, text: str) -> str:
    return kind[0] + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def embed_chats(embedder: CachedEmbedder, chats: Sequence[Chat]) -> None:
    """Embed every turn and question once, and save the cache."""
    for chat in chats:
        embedder.embed_documents([*chat.read, *(turn.text for turn in chat.turns)])
        for question in chat.questions:
            embedder.embed_query(question.text)
    embedder.save()
