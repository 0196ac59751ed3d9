"""What can be read off a text: its sentences and words, names, questions, and who speaks.

**Words.** Terms are runs of letters and digits after NFKC normalisation and case folding. Scripts
that are written without spaces have no such words, so a run of them becomes its character bigrams
(the practice of Lucene's CJK analyser). There is no stop-word list and no stemming: both are tied
to one language, and inverse document frequency already discounts what is everywhere.

**Turns of a conversation** are read as they were meant: a question belongs to the reply to it.
Whoever asks "What did your kids make of it?" makes a question about the kids likely, and answers
nothing; the reply, "They were awestruck.", answers it and shares no word with it. Rankers and
likelihoods alike prefer the asker. So the short questions at the end of a turn are read at the
beginning of the reply to it, and not where they were asked: passages are cut between statements
then, and not within an adjacency pair (Schegloff and Sacks 1973). Only how a passage is read for
ranking and scoring changes; what is kept is the turn as it is. Any language that ends questions
with one of ``?？؟`` is served.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate, pairwise

from sentencex import segment

# Thai and Lao, Khmer, Hiragana and Katakana, CJK ideographs with extensions.
UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
UNSPACED += "\U00020000-\U0003ffff"
# Vowel signs belong to the letter before them, except points that Arabic and Hebrew may leave out.
_MARKS = "".join(c for c in map(chr, range(0x300, 0x1100)) if unicodedata.category(c)[0] == "M")
_LETTERS = rf"(?:[^\W{UNSPACED}][{_MARKS}]*)+"
_RUN = re.compile(rf"[{UNSPACED}]+|{_LETTERS}(?:['’]{_LETTERS})?")
_ASCII_RUN = re.compile(r"\w+(?:'\w+)?")
_POINTS = re.compile("[\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]")
_IS_UNSPACED = re.compile(rf"[{UNSPACED}]")

WORD = re.compile(r"\w+")

_LANGUAGES = ("en", "de", "fr", "es")
_LINE = re.compile(r"[^\n]{1,2000}\n*|\n+")  # or a part of a long one
_ODD = re.compile(r"[^\S\n ]|[\ud800-\udfff]")

MIN_TURNS = 12
"""Passages from which on chance hardly makes a selection of turns alternate as a chat does."""
MAX_ASKED = 120
"""Characters of what is handed on. A longer question tells something itself ("I moved to Rome in
May with my two dogs, so ...?"), and stays where it was asked."""

_MOSTLY = 0.9
"""Share of passages that look like one turn each."""
_MIN_SAID_EACH = 4
"""Turns of a speaker on average: titles of documents do not come back as often as names."""
_MIN_ALTERNATION = 0.85
"""Share of turns that another speaker's follows: about 0.97 in chats, 0.5 if two speakers' turns
were shuffled or sorted by relevance."""

_TURN = re.compile(
    r"""\s*+(?P<stamp>[(\[][^\n]{1,60}?[)\]][^\S\n]*+)?  # when, in brackets
        (?P<speaker>[^\W\d_][^:：\n?？؟!]{0,39}?)\s*+    # who
        (?::(?=\s|$)|：)\s*""",
    re.VERBOSE,
)
_QUESTION_MARKS = "?？؟"
_NO_WORD_BACKWARDS = re.compile(r"[\W_]*")


def well_formed(text: str) -> str:
    """``text`` with U+FFFD for every half of a surrogate pair; as it is where there is none.

    A cut through UTF-16 or a bad PDF leaves such halves behind. Tokenizers refuse the text, and
    all others of the same batch with it. Halves that stand side by side become the character
    that they were.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def one_line(text: str) -> str:
    """``text`` for a terminal: one line, without anything that does not print."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def printable(text: str) -> str:
    """``text`` for a terminal, lines kept; what does not print is escaped as JSON does it."""
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def terms(text: str) -> list[str]:
    """The terms of a text, in order.

    >>> terms("Anna's train, 9:30")
    ["anna's", 'train', '9', '30']
    >>> terms("東京都へ")
    ['東京', '京都', '都へ']
    """
    if text.isascii():
        return _ASCII_RUN.findall(text.lower())
    out: list[str] = []
    for run in _RUN.findall(_POINTS.sub("", unicodedata.normalize("NFKC", text).casefold())):
        if len(run) > 1 and _IS_UNSPACED.match(run):
            out.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            out.append(run)
    return out


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Character spans of sentences and lines; they partition the text.

    A sentence ends where it does by the rules of English, German, French and Spanish alike, which
    know the marks of other scripts too. White space belongs to the sentence before it.
    """
    ends = [0]
    for line in _LINE.finditer(text):
        # Parts of a length, and one kind of space: sentencex takes the square of a length for some
        # marks, and fails at a space of several bytes.
        plain = _ODD.sub(" ", line.group().rstrip("\n"))
        found = (accumulate(map(len, segment(language, plain))) for language in _LANGUAGES)
        within = set.intersection(*map(set, found)) - {len(plain)}
        ends += sorted(line.start() + end for end in within)
        if len(plain) < len(line.group()):
            ends.append(line.end())
    spans: list[tuple[int, int]] = []
    for start, end in pairwise(dict.fromkeys((*ends, len(text)))):
        if text[start:end].strip() or not spans:
            spans.append((start, end))
        else:
            spans[-1] = (spans[-1][0], end)
    return spans


def names_and_numbers(text: str) -> list[str]:
    """Numbers, capitalised words and those of a script without lower case, casefolded, in order.

    >>> names_and_numbers("Ada met Bob on May 4")
    ['ada', 'bob', 'may', '4']
    """
    return [word.casefold() for word in WORD.findall(text) if not word.islower()]


def asks(text: str) -> bool:
    """Whether a question mark stands behind the last word of a text."""
    end = _NO_WORD_BACKWARDS.match(text[::-1])
    return end is not None and any(mark in end.group() for mark in _QUESTION_MARKS)


def is_conversation(passages: Sequence[str]) -> bool:
    """Whether passages look like the turns of a conversation, in the order in which they were said.

    Nearly all begin with ``name:``, behind a date or the like in brackets if there is one; the
    same few names come back, and mostly another one's turn follows. Turns that were sorted by
    relevance fail the last test, and so do shuffled ones of two speakers. Fewer than `MIN_TURNS`
    are none; blank ones do not count.
    """
    filled = [passage for passage in passages if passage.strip()]
    heads = [head for passage in filled if (head := _TURN.match(passage))]
    if len(heads) < max(MIN_TURNS, _MOSTLY * len(filled)):
        return False
    speakers = [head["speaker"] for head in heads]
    stamps = [head["stamp"] for head in heads]
    known = set(speakers)
    changes = sum(one != other for one, other in pairwise(speakers))
    sessions = 1 + sum(one != other for one, other in pairwise(stamps))
    return (
        1 < len(known) <= len(speakers) / _MIN_SAID_EACH
        and changes >= _MIN_ALTERNATION * (len(speakers) - 1)
        # Sorted by anything but time, what was said at one time does not stand together.
        and sessions == len(set(stamps))
        and sum(_several_turns(passage, known) for passage in filled) <= (1 - _MOSTLY) * len(filled)
    )


def as_replies(turns: Sequence[str]) -> list[str]:
    """Every turn as it is read: without the questions at its end, with those that it replies to.

    A question is handed to the next turn of another speaker in the same session, if there is one,
    and stays where it is otherwise. A session is what bears the same date; where each turn has a
    date of its own, all is one session.

    >>> as_replies(["Ana: I am back. How was Rome?", "Ben: Hot!"])
    ['Ana: I am back.', 'Ben: How was Rome? Hot!']

    Args:
        turns: In the order in which they were said; a text that does not begin with ``name:`` is
            no turn, and is read as it is.
    """
    heads = [_TURN.match(text) for text in turns]
    stamps = [head["stamp"] for head in heads if head]
    dated = len(set(stamps)) <= len(stamps) / 2
    read = list(turns)
    handed: dict[int, str] = {}
    for index, (text, head) in enumerate(zip(turns, heads, strict=True)):
        asked = asked_at_end(text) if head else ""
        reply = _reply_to(index, heads, dated) if head and asked else None
        if reply is not None:
            handed[reply] = f"{handed.get(reply, '')} {asked}".strip()
            read[index] = _without(text, asked)
    return [as_reply(text, handed.get(index, "")) for index, text in enumerate(read)]


def asked_at_end(text: str) -> str:
    """The questions with which a text ends; empty if it ends with none, or with a long one.

    >>> asked_at_end("Ana: I am back. How was Rome?")
    'How was Rome?'
    """
    start = max(0, len(text) - 4 * MAX_ASKED)
    if not any(mark in text[start:] for mark in _QUESTION_MARKS):
        return ""
    head = _TURN.match(text)
    start = max(start, 0 if head is None else head.end())
    asked = text[start + _questions_from(text[start:]) :].strip()
    return asked if len(asked) <= MAX_ASKED else ""


def as_reply(text: str, asked: str) -> str:
    """A text as it is read: with the question that it replies to, behind the ``name:`` if any.

    >>> as_reply("Ben: Hot!", "How was Rome?")
    'Ben: How was Rome? Hot!'
    """
    if not asked:
        return text
    head = _TURN.match(text)
    pieces = (asked, text) if head is None else (head.group().strip(), asked, text[head.end() :])
    return " ".join(pieces)


def same_speaker(one: str, other: str) -> bool:
    """Whether two texts begin with the same ``name:``, or not both with one."""
    heads = _TURN.match(one), _TURN.match(other)
    return heads[0] is None or heads[1] is None or heads[0]["speaker"] == heads[1]["speaker"]


def as_replies_to(turns: Sequence[str], before: Sequence[str | None]) -> list[str]:
    """As `as_replies`, of turns in any order, each with the turn that was said before it.

    >>> as_replies_to(["Ben: Hot!"], ["Ana: I am back. How was Rome?"])
    ['Ben: How was Rome? Hot!']

    ``before`` holds what was said before each, among the turns or not; None where it is not known.
    """
    handed = [
        "" if said is None or same_speaker(said, text) else asked_at_end(said)
        for text, said in zip(turns, before, strict=True)
    ]
    moved = {said: asked for said, asked in zip(before, handed, strict=True) if asked}
    return [
        as_reply(_without(text, moved.get(text, "")), asked)
        for text, asked in zip(turns, handed, strict=True)
    ]


def _several_turns(passage: str, speakers: set[str]) -> bool:
    heads = (_TURN.match(line) for line in passage.splitlines())
    return sum(head is not None and head["speaker"] in speakers for head in heads) > 1


def _without(text: str, asked: str) -> str:
    return text.rstrip().removesuffix(asked).rstrip() if asked else text


def _reply_to(index: int, heads: Sequence[re.Match[str] | None], dated: bool) -> int | None:
    turn = heads[index]
    for later in range(index + 1, len(heads)):
        found = heads[later]
        if turn is None or found is None or (dated and found["stamp"] != turn["stamp"]):
            return None
        if found["speaker"] != turn["speaker"]:
            return later
    return None


def _questions_from(text: str) -> int:
    """Where the questions begin with which a text ends; its length if it ends with none."""
    start = len(text)
    for begin, end in reversed(sentence_spans(text)):
        sentence = text[begin:end]
        if asks(sentence):
            start = begin
        elif WORD.search(sentence):  # what is no sentence, such as a smiley, comes along
            break
    return start
