"""Long passages into units that can be scored, and back.

The signal of a sentence drowns in a long passage (section 4.4.1 of the paper: focused passages
of up to about 200 tokens), and a model's window is finite. A long passage is cut at turns and
sentence ends into units; a short one is its own unit. Units partition their passage: joined
they are the passage, character by character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ecs_plugins.errors import ConfigurationError

UNIT_TOKENS = 200
"""Section 4.10 of the paper: score passages of at most about 200 tokens."""

TokenCounter = Callable[[Sequence[str]], Sequence[int]]
"""Tokens of each text, such as `LanguageModel.count_tokens`."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a passage.

    Attributes:
        source: Index of the passage it was cut from.
        start: First character within the passage.
        end: One past its last character.
        text: ``passage[start:end]``, unchanged.
        tokens: As counted when it was cut.
    """

    source: int
    start: int
    end: int
    text: str
    tokens: int


_ABBREVIATION_LIST = """
mr mrs ms dr prof st sr jr vs etc eg ie e.g i.e cf al fig figs eq nos vol pp ed eds approx est
dept univ inc ltd co corp gen col sgt capt lt rev hon gov sen rep pres mt ft jan feb mar apr jun
jul aug sep sept oct nov dec u.s u.k u.n a.m p.m ph.d z.b d.h bzw nr ca usw mme mlle p.ej sra dra
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
_END = re.compile(
    r"""\n+                                         # a turn or a line
      | [.!?…]+ ["')\]»”’]* (?P<space>[^\S\n]+)     # a sentence, with what closes it
      | [。！？｡]+ [」』”’）)]* [^\S\n]*              # the same where no space follows
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"([^\W\d_](?:[\w.]*[\w])?)$")
_WORD = re.compile(r"\s*\S+(?:\s+\Z)?")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Character spans of sentences and lines; they partition the text.

    A full stop ends no sentence after an abbreviation or a single initial, nor where a lower-case
    word follows. White space belongs to the sentence before it.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if match["space"] and not _ends_sentence(text, match):
            continue
        if text[start : match.end()].strip() or not spans:
            spans.append((start, match.end()))
        else:
            spans[-1] = (spans[-1][0], match.end())
        start = match.end()
    if start < len(text):
        if text[start:].strip() or not spans:
            spans.append((start, len(text)))
        else:
            spans[-1] = (spans[-1][0], len(text))
    return spans


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    following = text[match.end() : match.end() + 1]
    if following.islower():
        return False
    mark = match.group().rstrip()
    if mark != ".":
        return True
    word = _LAST_WORD.search(text, max(0, match.start() - 24), match.start())
    if word is None:
        return True
    before = word.group(1)
    # A single capital is an initial ("J. Smith"), but "I" and "A" also end sentences.
    initial = len(before) == 1 and before.isupper() and before != "I"
    return not initial and before.lower() not in _ABBREVIATIONS


def split_passages(
    passages: Sequence[str],
    count_tokens: TokenCounter,
    max_tokens: int = UNIT_TOKENS,
    *,
    lengths: Sequence[int] | None = None,
) -> list[Unit]:
    """Cut every passage into units of about ``max_tokens`` at most.

    Sentences are packed from the front as long as they fit. A sentence that is too long by
    itself is cut between words, a word that is too long between characters. Tokens of pieces
    are counted apart, so a unit may have a few tokens more or less than the sum.

    Args:
        passages: Any texts; a blank one is one unit.
        count_tokens: Tokens of each text.
        max_tokens: At least 1.
        lengths: Tokens of every passage, if they have been counted already.

    Returns:
        Units in reading order; those of one passage partition it.

    Raises:
        ConfigurationError: ``max_tokens`` is not positive.
    """
    if max_tokens < 1:
        raise ConfigurationError(f"a unit needs at least one token, got max_tokens={max_tokens}")
    units: list[Unit] = []
    if lengths is None:
        lengths = count_tokens(passages) if passages else []
    for source, (passage, length) in enumerate(zip(passages, lengths, strict=True)):
        if length <= max_tokens:
            units.append(Unit(source, 0, len(passage), passage, length))
            continue
        pieces = _cut(passage, sentence_spans(passage), count_tokens, max_tokens)
        units.extend(
            Unit(source, start, end, passage[start:end], tokens)
            for start, end, tokens in _pack(pieces, max_tokens)
        )
    return units


def _cut(
    text: str, spans: list[tuple[int, int]], count_tokens: TokenCounter, max_tokens: int
) -> list[tuple[int, int, int]]:
    """Spans with their tokens, none longer than ``max_tokens`` unless it is one character."""
    counts = count_tokens([text[start:end] for start, end in spans])
    out: list[tuple[int, int, int]] = []
    for (start, end), tokens in zip(spans, counts, strict=True):
        if tokens <= max_tokens or end - start <= 1:
            out.append((start, end, tokens))
            continue
        words = [(start + m.start(), start + m.end()) for m in _WORD.finditer(text[start:end])]
        if len(words) > 1:
            finer = words
        else:
            middle = (start + end) // 2
            finer = [(start, middle), (middle, end)]
        out.extend(_pack(_cut(text, finer, count_tokens, max_tokens), max_tokens))
    return out


def _pack(pieces: Iterable[tuple[int, int, int]], max_tokens: int) -> list[tuple[int, int, int]]:
    """Join neighbours from the front while they fit."""
    packed: list[tuple[int, int, int]] = []
    for start, end, tokens in pieces:
        if packed and packed[-1][2] + tokens <= max_tokens:
            packed[-1] = (packed[-1][0], end, packed[-1][2] + tokens)
        else:
            packed.append((start, end, tokens))
    return packed


def join_units(units: Iterable[Unit], passages: Sequence[str], gap: str = "\n") -> dict[int, str]:
    """Put kept units of each passage together again, in reading order.

    Args:
        units: Any subset, in any order; doubles count once.
        passages: What the units were cut from.
        gap: Stands where units between two kept ones are missing.

    Returns:
        Passage index -> text, in order of index. All units of a passage give it unchanged.
    """
    joined: dict[int, str] = {}
    ordered = sorted(set(units), key=lambda unit: (unit.source, unit.start))
    for source, group in groupby(ordered, key=lambda unit: unit.source):
        runs: list[tuple[int, int]] = []
        for unit in group:
            if runs and runs[-1][1] == unit.start:
                runs[-1] = (runs[-1][0], unit.end)
            else:
                runs.append((unit.start, unit.end))
        whole = runs == [(0, len(passages[source]))]
        texts = [passages[source][start:end] for start, end in runs]
        joined[source] = texts[0] if whole else gap.join(text.strip() for text in texts)
    return joined
