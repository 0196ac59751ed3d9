"""Result of shaping: a verdict for every passage, and its cost."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ecs_plugins.common.rendering import WIDTH, preformatted, rendered
from ecs_plugins.common.text import one_line
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.shaping.spans import Span, by_handle, gaps, join_spans
from ecs_plugins.tokens import TokenLedger


class Verdict(StrEnum):
    """Verdicts on a passage."""

    HELPS = "helps"
    """Its utility reaches the threshold."""
    SELECTED = "selected"
    """Kept by its rank, because there is no threshold: among the best, whatever its sign."""
    NEUTRAL = "neutral"
    """Its utility lies between minus the threshold and the threshold, or its rank is too low."""
    HURTS = "hurts"
    """Its utility is below minus the threshold: it makes the answer less likely."""
    REDUNDANT = "redundant"
    """It repeats a passage that is kept."""
    UNSCORED = "unscored"
    """The model did not score it; the reason says why."""


@dataclass(frozen=True, slots=True)
class PassageVerdict:
    """Decision on one passage, with its reason.

    Attributes:
        index: Its place in the input.
        text: The passage, unchanged.
        verdict: What is said of it.
        kept: Whether it stays. A passage that helps is not kept when ``top_k`` or
            ``max_tokens`` is used up by better ones, or its sentences by those of others.
        utility: Nats after the length penalty; of its best unit, if it was split. None if it
            was not scored.
        parts: The signal's own parts; with ``units`` and ``best_unit`` where it was split.
        tokens: Tokens of the whole passage.
        rank: Its place by the ranker of stage 1, 1 is the best; None without a ranker.
        rank_score: The ranker's score.
        reason: One line that explains the verdict.
        score: What the passages are ordered by; the utility, unless the signal orders by
            something else.
        place: Its place in the order of acceptance, 1 is the first; None if it was not kept. With
            ``acceptance="stream"`` that is not the order of the scores.
        spans: What stays of the text, where its sentences were chosen and not all of them stay.
        tokens_kept: Tokens of `kept_text`, where that is not the whole text.
        probability: That the passage helps to answer, in [0, 1]; it falls with the score. None
            where nothing was fitted to model and signal, or passages were not scored alone.
        cut_by: The setting that keeps the passage or some of its sentences out, such as ``top_k``;
            several with ``and`` between; empty where none does.
    """

    index: int
    text: str
    verdict: Verdict
    kept: bool
    utility: float | None
    parts: Mapping[str, float]
    tokens: int
    rank: int | None = None
    rank_score: float | None = None
    reason: str = ""
    score: float | None = None
    place: int | None = None
    spans: tuple[Span, ...] = ()
    tokens_kept: int | None = None
    probability: float | None = None
    cut_by: str = ""

    @property
    def kept_text(self) -> str:
        """Text that stays of the passage; empty if it is not kept."""
        if not self.kept:
            return ""
        return join_spans(self.spans, self.text) if self.spans else self.text

    @property
    def dropped(self) -> dict[str, str]:
        """Dropped texts by id: the passage, or each gap between its sentences."""
        if not self.kept:
            return by_handle([self.text])
        return by_handle(gaps(self.spans, self.text)) if self.spans else {}

    def spans_in(self, part: str) -> tuple[Span, ...]:
        """Return the kept spans of a part of the passage, such as its text after metadata.

        Empty where the part stays as it is, stands nowhere, or would be left without text.
        """
        offset = self.text.rfind(part) if self.spans else -1
        if offset < 0:
            return ()
        inside: list[Span] = []
        for start, end in self.spans:
            first = max(0, start - offset)
            last = min(len(part), end - offset)
            if first < last:
                inside.append((first, last))
        return tuple(inside) if join_spans(inside, part).strip() else ()

    def to_dict(self) -> dict[str, object]:
        """Return plain types for JSON; infinities and NaN become None."""
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "verdict": str(self.verdict),
            "parts": {name: _finite(value) for name, value in self.parts.items()},
            "rank_score": _finite(self.rank_score),
            "spans": [list(span) for span in self.spans],
        }


@dataclass(frozen=True, slots=True)
class ShapedContext:
    """The result of `ContextShaper.shape`.

    Attributes:
        query: As given.
        verdicts: One per passage, in input order.
        signal: Name of the signal that was measured.
        model: Name of the model that scored.
        ledger: Tokens that passed through the scoring model.
        seconds: Wall time.
        error: Why nothing could be scored, when ``on_error="return_input"`` took effect: every
            passage is kept then, and `unscored`. None otherwise.
        conversation: True if the passages were read as turns of a conversation.
        over_budget: True if the best passage or sentence stays although it alone is longer than
            ``max_tokens``, ``max_characters`` or ``keep_share`` allow.
    """

    query: str
    verdicts: tuple[PassageVerdict, ...]
    signal: str
    model: str
    ledger: TokenLedger = field(default_factory=TokenLedger)
    seconds: float = 0.0
    error: str | None = None
    conversation: bool = False
    over_budget: bool = False

    @property
    def kept(self) -> tuple[PassageVerdict, ...]:
        """Kept passages in the order of the input."""
        return tuple(verdict for verdict in self.verdicts if verdict.kept)

    @property
    def accepted(self) -> tuple[PassageVerdict, ...]:
        """Kept passages in the order of acceptance; in the given order if nothing was scored."""
        return tuple(sorted(self.kept, key=lambda verdict: verdict.place or 0))

    @property
    def ranked(self) -> tuple[PassageVerdict, ...]:
        """Scored passages, best first; ties in the order of the input."""
        scored = [verdict for verdict in self.verdicts if verdict.score is not None]
        return tuple(sorted(scored, key=lambda verdict: -(verdict.score or 0.0)))

    @property
    def answerable(self) -> float | None:
        """The largest probability of a passage: where it is low, nothing here answers the question.

        None where no passage has one.
        """
        probabilities = [verdict.probability for verdict in self.verdicts]
        known = [probability for probability in probabilities if probability is not None]
        return max(known, default=None)

    @property
    def cuts(self) -> dict[str, int]:
        """Number of passages that each setting keeps out or shortens, the most first."""
        counts = Counter(verdict.cut_by for verdict in self.verdicts if verdict.cut_by)
        return dict(counts.most_common())

    @property
    def text(self) -> str:
        """Text of the kept passages, separated by blank lines."""
        return "\n\n".join(verdict.kept_text for verdict in self.kept)

    @property
    def dropped(self) -> dict[str, str]:
        """Dropped texts by id: the passage, or each gap between its sentences."""
        dropped: dict[str, str] = {}
        for verdict in self.verdicts:
            dropped |= verdict.dropped
        return dropped

    def restore(self, id: str) -> str:
        """Return the dropped text under an id of `dropped`.

        Raises:
            InvalidInputError: Nothing was.
        """
        dropped = self.dropped
        if id not in dropped:
            raise InvalidInputError(f"nothing was dropped under {id!r}: see ShapedContext.dropped")
        return dropped[id]

    @property
    def tokens_before(self) -> int:
        """Return tokens of all passages."""
        return sum(verdict.tokens for verdict in self.verdicts)

    @property
    def tokens_after(self) -> int:
        """Tokens of the kept text."""
        total = 0
        for verdict in self.kept:
            shortened = verdict.tokens_kept
            total += verdict.tokens if shortened is None else shortened
        return total

    def explain(self, *, width: int = WIDTH, limit: int | None = 50) -> str:
        """Return a table of the verdicts: kept and scored passages first, best first.

        Args:
            width: Characters per line.
            limit: At most so many rows; None shows all.
        """
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            title=Text(_shortened(self.query, 4 * width)),
        )
        for name in ("#", "kept", "verdict", "score", "tokens"):
            table.add_column(
                name,
                justify="left" if name == "verdict" else "right",
                no_wrap=True,
            )
        table.add_column("passage, and why", ratio=1)
        shown = max(16, width - _NUMBERS_WIDTH)
        order = sorted(self.verdicts, key=_kept_and_best_first)
        for verdict in order[:limit]:
            passage = _shortened(verdict.text, shown)
            table.add_row(
                str(verdict.index),
                "yes" if verdict.kept else "",
                str(verdict.verdict),
                "" if verdict.score is None else f"{verdict.score:+.3f}",
                str(verdict.tokens),
                Text(f"{passage}\n{verdict.reason}"),
            )
        hidden = len(order) - len(order[:limit])
        summary = rendered("shaped.txt.j2", of=self, hidden=hidden)
        output = io.StringIO()
        console = Console(
            file=output,
            width=width,
            color_system=None,
            force_jupyter=False,
        )
        console.print(table, Text(summary.rstrip()), sep="\n")
        lines = [line.rstrip() for line in output.getvalue().splitlines()]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        """Return the table, as a notebook shows it."""
        return preformatted(self.explain())

    def to_dict(self) -> dict[str, object]:
        """Return the result as a dict of plain types, for JSON."""
        plain = ("query", "signal", "model", "seconds", "error", "conversation", "over_budget")
        return {
            **{name: getattr(self, name) for name in (*plain, "answerable")},
            "kept": [verdict.index for verdict in self.kept],
            "passages": [verdict.to_dict() for verdict in self.verdicts],
            "tokens": {
                "before": self.tokens_before,
                "after": self.tokens_after,
                "ledger": self.ledger.to_dict(),
            },
        }


_NUMBERS_WIDTH = 46  # characters of all columns but the last


def _kept_and_best_first(verdict: PassageVerdict) -> tuple[bool, bool, float, int]:
    """Order the rows of a table: kept ones, then scored ones, then by score and index."""
    worst_last = -(verdict.score or 0.0)
    return not verdict.kept, verdict.score is None, worst_last, verdict.index


def _shortened(text: str, width: int) -> str:
    line = one_line(text[: 4 * width])
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
