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
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from sentencex import segment

# Thai and Lao, Khmer, Hiragana and Katakana, CJK ideographs with extensions.
UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
UNSPACED += "\U00020000-\U0003ffff"
# Vowel signs belong to the letter before them, except points that Arabic and Hebrew may leave out.
_MARKS = "".join(
    character
    for character in map(chr, range(0x300, 0x1100))
    if unicodedata.category(character).startswith("M")
)
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
_CLOSING = "\"')]}»”’」』）】"
"""What may stand between the mark at the end of a sentence and the next one."""
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
    printed = [character if character.isprintable() else " " for character in text]
    words = "".join(printed).split()
    return " ".join(words)


def printable(text: str) -> str:
    """``text`` for a terminal, lines kept; what does not print is escaped as JSON does it."""
    return "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    if character == "\x7f":  # which JSON leaves as it is
        return "\\u007f"
    return json.dumps(character)[1:-1]


def terms(text: str) -> list[str]:
    """The terms of a text, in order.

    >>> terms("Anna's train, 9:30")
    ["anna's", 'train', '9', '30']
    >>> terms("東京都へ")
    ['東京', '京都', '都へ']
    """
    if text.isascii():
        return _ASCII_RUN.findall(text.lower())
    normal = unicodedata.normalize("NFKC", text)
    without_points = _POINTS.sub("", normal.casefold())
    found: list[str] = []
    for run in _RUN.findall(without_points):
        if len(run) > 1 and _IS_UNSPACED.match(run):
            found += map("".join, pairwise(run))
        else:
            found.append(run)
    return found


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Character spans of sentences and lines; they partition the text.

    A sentence ends where it does by the rules of English, German, French and Spanish alike, which
    know the marks of other scripts too, and not inside a name such as ``java.util.List``. White
    space belongs to the sentence before it.
    """
    ends = [0]
    for line in _LINE.finditer(text):
        written = line.group()
        # Parts of a length, and one kind of space: sentencex takes the square of a length for some
        # marks, and fails at a space of several bytes.
        plain = _ODD.sub(" ", written.rstrip("\n"))
        ends += [line.start() + end for end in _ends_within(plain)]
        if len(plain) < len(written):
            ends.append(line.end())
    ends.append(len(text))
    distinct = dict.fromkeys(ends)
    spans: list[tuple[int, int]] = []
    for start, end in pairwise(distinct):
        is_blank = not text[start:end].strip()
        if is_blank and spans:
            start, _ = spans.pop()
        spans.append((start, end))
    return spans


def _ends_within(line: str) -> list[int]:
    """Where sentences end before the end of a line, by the rules of all languages alike."""
    alike: set[int] | None = None
    for language in _LANGUAGES:
        lengths = map(len, segment(language, line))
        ends = set(accumulate(lengths))
        alike = ends if alike is None else alike & ends
    within = (alike or set()) - {len(line)}
    return [end for end in sorted(within) if not _in_a_name(line, end)]


def _in_a_name(line: str, end: int) -> bool:
    """Whether a mark has no space behind it, as in ``java.util`` and ``a.B/c?d=E.F``.

    The marks of scripts that are written without spaces need none.
    """
    before = line[end - 1]
    following = line[end]
    if before.isspace() or following.isspace():
        return False
    sentence = line[:end].rstrip(_CLOSING)
    mark = sentence[-1:]
    is_spaced = following.isascii() or following.islower() or following.isupper()
    return mark.isascii() and is_spaced


def names_and_numbers(text: str) -> list[str]:
    """Numbers, capitalised words and those of a script without lower case, casefolded, in order.

    >>> names_and_numbers("Ada met Bob on May 4")
    ['ada', 'bob', 'may', '4']
    """
    words = WORD.findall(text)
    return [word.casefold() for word in words if not word.islower()]


def asks(text: str) -> bool:
    """Whether a question mark stands behind the last word of a text."""
    backwards = text[::-1]
    end = _NO_WORD_BACKWARDS.match(backwards)
    return end is not None and _has_question_mark(end.group())


def _has_question_mark(text: str) -> bool:
    return any(mark in text for mark in _QUESTION_MARKS)


def is_conversation(passages: Sequence[str]) -> bool:
    """Whether passages look like the turns of a conversation, in the order in which they were said.

    Nearly all begin with ``name:``, behind a date or the like in brackets if there is one; the
    same few names come back, and mostly another one's turn follows. Turns that were sorted by
    relevance fail the last test, and so do shuffled ones of two speakers. Fewer than `MIN_TURNS`
    are none; blank ones do not count.
    """
    filled = [passage for passage in passages if passage.strip()]
    heads = _heads(filled)
    least = max(MIN_TURNS, _MOSTLY * len(filled))
    if len(heads) < least:
        return False
    speakers = [head["speaker"] for head in heads]
    stamps = [head["stamp"] for head in heads]
    if not _alternate(speakers):
        return False
    # Sorted by anything but time, what was said at one time does not stand together.
    times = len(set(stamps))
    if _changes(stamps) != times - 1:
        return False
    names = set(speakers)
    exchanges = sum(_several_turns(passage, names) for passage in filled)
    most = (1 - _MOSTLY) * len(filled)
    return exchanges <= most


def _heads(texts: Iterable[str]) -> list[re.Match[str]]:
    """When and who, of those texts that begin as turns do."""
    matches = map(_TURN.match, texts)
    return [head for head in matches if head is not None]


def _alternate(speakers: Sequence[str]) -> bool:
    """Whether a few speakers come back, and mostly another one's turn follows."""
    distinct = len(set(speakers))
    most = len(speakers) / _MIN_SAID_EACH
    if not 1 < distinct <= most:
        return False
    chances = len(speakers) - 1
    return _changes(speakers) >= _MIN_ALTERNATION * chances


def _changes(labels: Iterable[str | None]) -> int:
    """How often a label differs from the one before it."""
    return sum(one != other for one, other in pairwise(labels))


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
    statements = list(turns)
    questions: dict[int, list[str]] = defaultdict(list)  # by the turn that replies to them
    for index, text in enumerate(turns):
        if heads[index] is None:
            continue
        question = asked_at_end(text)
        if not question:
            continue
        reply = _reply_to(index, heads, dated=dated)
        if reply is not None:
            questions[reply].append(question)
            statements[index] = _without(text, question)
    replies: list[str] = []
    for index, statement in enumerate(statements):
        asked = " ".join(questions[index])
        replies.append(as_reply(statement, asked))
    return replies


def asked_at_end(text: str) -> str:
    """The questions with which a text ends; empty if it ends with none, or with a long one.

    >>> asked_at_end("Ana: I am back. How was Rome?")
    'How was Rome?'
    """
    start = max(0, len(text) - 4 * MAX_ASKED)
    if not _has_question_mark(text[start:]):
        return ""
    head = _TURN.match(text)
    if head is not None:
        start = max(start, head.end())
    end = text[start:]
    first = _questions_from(end)
    questions = end[first:].strip()
    if len(questions) > MAX_ASKED:
        return ""
    return questions


def as_reply(text: str, asked: str) -> str:
    """A text as it is read: with the question that it replies to, behind the ``name:`` if any.

    >>> as_reply("Ben: Hot!", "How was Rome?")
    'Ben: How was Rome? Hot!'
    """
    if not asked:
        return text
    head = _TURN.match(text)
    if head is None:
        return f"{asked} {text}"
    name = head.group().strip()
    statement = text[head.end() :]
    return f"{name} {asked} {statement}"


def same_speaker(one: str, other: str) -> bool:
    """Whether two texts begin with the same ``name:``, or not both with one."""
    head = _TURN.match(one)
    other_head = _TURN.match(other)
    if head is None or other_head is None:
        return True
    return head["speaker"] == other_head["speaker"]


def as_replies_to(turns: Sequence[str], before: Sequence[str | None]) -> list[str]:
    """As `as_replies`, of turns in any order, each with the turn that was said before it.

    >>> as_replies_to(["Ben: Hot!"], ["Ana: I am back. How was Rome?"])
    ['Ben: How was Rome? Hot!']

    ``before`` holds what was said before each, among the turns or not; None where it is not known.
    """
    questions: list[str] = []
    moved: dict[str | None, str] = {}
    for text, previous in zip(turns, before, strict=True):
        question = _asked_of(text, previous)
        questions.append(question)
        if question:
            moved[previous] = question
    replies: list[str] = []
    for text, question in zip(turns, questions, strict=True):
        statement = _without(text, moved.get(text, ""))
        replies.append(as_reply(statement, question))
    return replies


def _asked_of(turn: str, previous: str | None) -> str:
    """The questions at the end of the turn before, if another speaker asked them."""
    if previous is None or same_speaker(previous, turn):
        return ""
    return asked_at_end(previous)


def _several_turns(passage: str, speakers: set[str]) -> bool:
    heads = _heads(passage.splitlines())
    turns = [head for head in heads if head["speaker"] in speakers]
    return len(turns) > 1


def _without(text: str, asked: str) -> str:
    if not asked:
        return text
    body = text.rstrip()
    statement = body.removesuffix(asked)
    return statement.rstrip()


def _reply_to(
    index: int,
    heads: Sequence[re.Match[str] | None],
    *,
    dated: bool,
) -> int | None:
    """The next turn of another speaker in the same session."""
    turn = heads[index]
    if turn is None:
        return None
    for place in range(index + 1, len(heads)):
        later = heads[place]
        if later is None:
            return None
        if dated and later["stamp"] != turn["stamp"]:
            return None
        if later["speaker"] != turn["speaker"]:
            return place
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
