"""Stage 1, the product's own: one pool of units for every method of a question.

Signals that are given the answer have a pool of their own, as in the product.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.common.text import as_replies, as_replies_to, is_conversation
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.shaping.passages import UNIT_TOKENS, Pool, Unit, build_pool, split_passages

Known: TypeAlias = Literal["metadata", "neighbours"]

_REMEMBERED = 32
"""Lists of units whose pieces are kept; conversations and articles are asked about often."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Question with its candidates.

    Attributes:
        question: With all its units.
        pieces: All units, as they are, cut to what a model reads at once, in reading order.
        tokens: Of every unit.
        stage1: The pieces that are scored, as the product reads them (turns of a conversation
            with the question that they reply to), and the place of every unit.
        as_they_are: The same units, cut and not otherwise changed, for methods of others.
        answered: What the product scores when it is given the answer: its ranker knows it then.
    """

    question: EvidenceQuestion
    pieces: tuple[Unit, ...]
    tokens: tuple[int, ...]
    stage1: Pool
    as_they_are: Pool
    answered: Pool

    @property
    def pool(self) -> tuple[int, ...]:
        """Indices of the units to order without the answer, best first."""
        return self.stage1.order


class CandidateFinder:
    """Cuts units into pieces and keeps the ``pool_size`` units that a ranker puts first.

    Args:
        ranker: Stage 1.
        model: Counts tokens.
        pool_size: Units that are passed on.
        retrieved: They are what a retriever finds, which ranks turns as they are. Known is the turn
            before each: among them by their ``"metadata"``, or always, by ``"neighbours"``.

    Raises:
        InvalidInputError: ``pool_size`` is not positive.
    """

    def __init__(
        self,
        ranker: Ranker,
        model: LanguageModel,
        pool_size: int,
        *,
        retrieved: Known | None = None,
    ) -> None:
        if pool_size < 1:
            raise InvalidInputError(f"the pool needs at least one unit, got {pool_size}")
        self._ranker = ranker
        self._model = model
        self._pool_size = pool_size
        self._retrieved = retrieved
        self._cut: OrderedDict[int, _Cut] = OrderedDict()

    def find(self, question: EvidenceQuestion) -> Candidates:
        """The pool of one question; blank units are never in it."""
        cut = self._cut_of(question.units)
        asked, size = question.question, self._pool_size
        read: Sequence[Unit] = cut.read
        if self._retrieved:
            found = build_pool(asked, cut.pieces, self._ranker, size)
            read = self._read_after_retrieval(question.units, sorted(found.units))
        stage1 = as_they_are = build_pool(asked, read, self._ranker, size)
        if cut.read is not cut.pieces:
            same = [piece for piece in cut.pieces if piece.source in stage1.units]
            as_they_are = build_pool(asked, same, self._ranker, size)
        looked_for = " ".join((asked, *question.answers))
        answered = build_pool(looked_for, read, self._ranker, size)
        return Candidates(question, cut.pieces, cut.tokens, stage1, as_they_are, answered)

    def _read_after_retrieval(self, units: Sequence[str], found: Sequence[int]) -> tuple[Unit, ...]:
        """The pieces of some units, turns as the product reads them in a list without order."""
        turns = [units[index] for index in found]
        sessions = [unit.partition(")")[0] for unit in units]  # "(date) name: ..."
        before: list[str | None] = []
        for index in found:
            is_known = self._retrieved == "neighbours" or index - 1 in found
            is_reply = index > 0 and sessions[index] == sessions[index - 1]
            before.append(units[index - 1] if is_known and is_reply else None)
        read = dict(zip(found, as_replies_to(turns, before), strict=True))
        texts = [read.get(index, "") for index in range(len(units))]
        return self._pieces(texts, self._model.count_tokens(texts))

    def _cut_of(self, units: tuple[str, ...]) -> _Cut:
        key = id(units)
        if key in self._cut:
            self._cut.move_to_end(key)
            return self._cut[key]
        tokens = self._model.count_tokens(units)
        pieces = read = self._pieces(units, tokens)
        if is_conversation(units):
            replies = as_replies(units)
            read = self._pieces(replies, self._model.count_tokens(replies))
        found = _Cut(units, pieces, read, tuple(tokens))
        self._cut[key] = found
        while len(self._cut) > _REMEMBERED:
            self._cut.popitem(last=False)
        return found

    def _pieces(self, units: Sequence[str], tokens: Sequence[int]) -> tuple[Unit, ...]:
        longest = max(1, min(UNIT_TOKENS, self._model.max_tokens // 4))
        pieces = split_passages(units, self._model.count_tokens, longest, lengths=tokens)
        return tuple(piece for piece in pieces if piece.text.strip())


@dataclass(frozen=True, slots=True)
class _Cut:
    """Pieces of a list of units, which is held so that its identity is not given away."""

    units: Sequence[str]
    pieces: tuple[Unit, ...]
    read: tuple[Unit, ...]
    tokens: tuple[int, ...]


def order_by_piece(ranker: Ranker, candidates: Candidates) -> Pool:
    """All units, each standing where the ranker puts its best piece."""
    pieces = candidates.pieces
    return build_pool(candidates.question.question, pieces, ranker, len(candidates.question.units))
