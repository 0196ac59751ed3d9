"""Words, sentences, names, questions and speakers of a text.

**Words.** Terms are runs of letters and digits after NFKC normalisation and case folding. Scripts
without spaces have no such runs, so they are split into character bigrams, like in Lucene's CJK
analyser. There is no stop-word list and no stemming. Both depend on one language, and inverse
document frequency already gives little weight to common words.

**Turns of a conversation.** A question belongs to its reply. "What did your kids make of it?" is
close to a question about the kids, but does not answer it. The reply "They were awestruck." answers
it and shares no word with it. Rankers and likelihoods prefer the turn that asks. So the short
questions at the end of a turn are moved to the beginning of the reply for ranking and scoring.
Passages are then cut between statements and not within an adjacency pair (Schegloff and Sacks
1973). The kept passage is the unchanged turn. This works in every language that ends questions with
one of ``?？؟``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from sentencex import segment

# Thai and Lao, Khmer, Hiragana and Katakana, CJK ideographs with extensions.
UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
UNSPACED += "\U00020000-\U0003ffff"
# Vowel signs belong to the letter before them. Points of Arabic and Hebrew are optional.
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
"""Fewest passages of a conversation. With fewer, random turns often alternate by chance."""
MAX_ASKED = 120
"""Most characters of a moved question. A longer one states something itself ("I moved to Rome in
May with my two dogs, so ...?") and stays in its turn."""

_MOSTLY = 0.9
"""Smallest share of passages that look like one turn."""
_MIN_SAID_EACH = 4
"""Smallest mean number of turns per speaker. Titles of documents repeat less often than names."""
_MIN_ALTERNATION = 0.85
"""Smallest share of turns followed by another speaker: about 0.97 in chats, 0.5 if the turns of two
speakers are shuffled or sorted by relevance."""

_TURN = re.compile(
    r"""\s*+(?P<stamp>[(\[][^\n]{1,60}?[)\]][^\S\n]*+)?  # when, in brackets
        (?P<speaker>[^\W\d_][^:：\n?？؟!]{0,39}?)\s*+    # who
        (?::(?=\s|$)|：)\s*""",
    re.VERBOSE,
)
_QUESTION_MARKS = "?？؟\u037e\u055e\u1367\u2047\u2048\u2049\u203d\ufe56"
"""Question marks of all scripts that have one."""
_OTHER_END = re.compile(r"[^\W_][.!…。！｡](?:\s|$|(?=[^\W\d_]))|\n")
"""A place where a sentence may end that does not ask."""
_CLOSING = "\"')]}»”’」』）】"
"""Characters that may follow the mark at the end of a sentence."""
_NO_WORD_BACKWARDS = re.compile(r"[\W_]*")


def well_formed(text: str) -> str:
    """Replace every lone surrogate with U+FFFD; other texts unchanged.

    Cut UTF-16 and bad PDFs leave lone surrogates, and tokenizers then refuse the whole batch. Two
    matching surrogates become their character.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def one_line(text: str) -> str:
    """Return a text on one line, with printable characters only."""
    printed = [character if character.isprintable() else " " for character in text]
    words = "".join(printed).split()
    return " ".join(words)


def printable(text: str) -> str:
    """Return a text with its lines, and with JSON escapes for characters that do not print."""
    return "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    if character == "\x7f":  # JSON does not escape it
        return "\\u007f"
    return json.dumps(character)[1:-1]


def terms(text: str) -> list[str]:
    """Return the terms of a text in order.

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
    """Return the character spans of sentences and lines; together they cover the text.

    A sentence ends where the rules of English, German, French and Spanish all see an end. The rules
    know the marks of other scripts. A name such as ``java.util.List`` is not split. White space
    belongs to the sentence before it.
    """
    ends = [0]
    for line in _LINE.finditer(text):
        written = line.group()
        # sentencex takes quadratic time for some marks, so parts are short. It fails at spaces of
        # several bytes, so all become plain spaces.
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
    """Return the ends of sentences within a line that the rules of all languages share."""
    alike: set[int] | None = None
    for language in _LANGUAGES:
        lengths = map(len, segment(language, line))
        ends = set(accumulate(lengths))
        alike = ends if alike is None else alike & ends
    within = (alike or set()) - {len(line)}
    return [end for end in sorted(within) if not _in_a_name(line, end)]


def _in_a_name(line: str, end: int) -> bool:
    """Return True if no space follows a mark, as in ``java.util`` and ``a.B/c?d=E.F``.

    Marks of scripts without spaces are exempt.
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
    """Return numbers, capitalised words and words without lower case, casefolded, in order.

    >>> names_and_numbers("Ada met Bob on May 4")
    ['ada', 'bob', 'may', '4']
    """
    words = WORD.findall(text)
    return [word.casefold() for word in words if not word.islower()]


def asks(text: str) -> bool:
    """Return True if a question mark follows the last word of a text."""
    backwards = text[::-1]
    end = _NO_WORD_BACKWARDS.match(backwards)
    return end is not None and _has_question_mark(end.group())


def asks_only(text: str) -> bool:
    """Return True if every sentence of a text ends with a question mark.

    >>> asks_only("Hi. Where is it?"), asks_only("Where does Dr. Li live? And why?")
    (False, True)
    """
    if not asks(text):
        return False
    if _OTHER_END.search(text) is None:
        return True
    sentences = (text[start:end] for start, end in sentence_spans(text))
    return all(asks(sentence) for sentence in sentences if WORD.search(sentence))


def _has_question_mark(text: str) -> bool:
    return any(mark in text for mark in _QUESTION_MARKS)


def is_conversation(passages: Sequence[str]) -> bool:
    """Return True if passages look like the turns of a conversation in their original order.

    Nearly all turns begin with ``name:``, after an optional date in brackets. A few names repeat,
    and mostly the speaker changes. Turns sorted by relevance, or shuffled turns of two speakers,
    fail the last condition. Fewer than `MIN_TURNS` passages are no conversation. Blank passages do
    not count.
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
    # Turns of one time are not neighbours if the passages are sorted by anything but time.
    times = len(set(stamps))
    if _changes(stamps) != times - 1:
        return False
    names = set(speakers)
    exchanges = sum(_several_turns(passage, names) for passage in filled)
    most = (1 - _MOSTLY) * len(filled)
    return exchanges <= most


def _heads(texts: Iterable[str]) -> list[re.Match[str]]:
    """Return the date and speaker of every text that begins like a turn."""
    matches = map(_TURN.match, texts)
    return [head for head in matches if head is not None]


def _alternate(speakers: Sequence[str]) -> bool:
    """Return True if a few speakers repeat and mostly take turns."""
    distinct = len(set(speakers))
    most = len(speakers) / _MIN_SAID_EACH
    if not 1 < distinct <= most:
        return False
    chances = len(speakers) - 1
    return _changes(speakers) >= _MIN_ALTERNATION * chances


def _changes(labels: Iterable[str | None]) -> int:
    """Count the labels that differ from the one before them."""
    return sum(one != other for one, other in pairwise(labels))


def as_replies(turns: Sequence[str]) -> list[str]:
    """Move the questions at the end of each turn to the beginning of the reply.

    The reply is the next turn, if another speaker says it in the same session. Without a reply the
    question stays. Turns of one date are a session; if every turn has its own date, all turns are
    one session.

    >>> as_replies(["Ana: I am back. How was Rome?", "Ben: Hot!"])
    ['Ana: I am back.', 'Ben: How was Rome? Hot!']

    Args:
        turns: Turns in their original order. A text that does not begin with ``name:`` is no turn
            and stays unchanged.
    """
    heads = [_TURN.match(text) for text in turns]
    stamps = [head["stamp"] for head in heads if head]
    dated = len(set(stamps)) <= len(stamps) / 2
    before: list[str | None] = [None]
    for text, head, later in zip(turns, heads, heads[1:], strict=False):
        follows = head and later and not (dated and head["stamp"] != later["stamp"])
        before.append(text if follows else None)
    return as_replies_to(turns, before[: len(turns)])


def asked_at_end(text: str) -> str:
    """Return the questions at the end of a text; empty if there are none or they are long.

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
    """Insert the question that a text replies to, after its ``name:`` if it has one.

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
    """Return True if two texts begin with the same ``name:``, or one of them has no name."""
    head = _TURN.match(one)
    other_head = _TURN.match(other)
    if head is None or other_head is None:
        return True
    return head["speaker"] == other_head["speaker"]


def as_replies_to(turns: Sequence[str], before: Sequence[str | None]) -> list[str]:
    """Move questions like `as_replies`, for turns in any order.

    >>> as_replies_to(["Ben: Hot!"], ["Ana: I am back. How was Rome?"])
    ['Ben: How was Rome? Hot!']

    Args:
        turns: Turns in any order.
        before: For each turn, the turn before it in the conversation; None if unknown.
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
    """Return the questions at the end of the previous turn, if another speaker asked them."""
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


def _questions_from(text: str) -> int:
    """Return the start of the questions at the end of a text; its length if there are none."""
    start = len(text)
    for begin, end in reversed(sentence_spans(text)):
        sentence = text[begin:end]
        if asks(sentence):
            start = begin
        elif WORD.search(sentence):  # a smiley is no sentence and stays with the question
            break
    return start
