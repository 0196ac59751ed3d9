"""Neutralisation of untrusted text before a model, a page or a terminal shows it.

The text cannot end its turn, close the marks around it or hide characters from the reader. Changes
are visible. Letters, line breaks and all other characters stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from ecs_plugins.common.text import well_formed

TAG = "recalled_notes"
"""Tag around recalled text."""

_MARK = re.compile(rf"<(?=\s*+(?:/\s*+)?{TAG})", re.IGNORECASE)

_JOINERS = (0x200C, 0x200D)
_INVISIBLE = [
    0xAD,  # soft hyphen
    0x61C,  # Arabic letter mark
    0x180E,
    *range(0x200B, 0x2010),  # zero width space to right-to-left mark, the joiners apart
    *range(0x202A, 0x202F),  # bidirectional embeddings and overrides
    *range(0x2060, 0x2070),  # word joiner, invisible operators, bidirectional isolates
    0xFEFF,
    *range(0xFFF9, 0xFFFC),  # interlinear annotations
    *range(0xE0000, 0xE0080),  # tags, which spell ASCII that nobody sees
]
_BREAKS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
_KEPT = [*map(ord, "\t\n\r"), *_JOINERS]
_TABLE: dict[int, str | None] = dict.fromkeys(_CONTROL, "\ufffd")
_TABLE.update(dict.fromkeys(_INVISIBLE))
_TABLE.update(dict.fromkeys(map(ord, _BREAKS), "\n"))
for _code in _KEPT:
    del _TABLE[_code]

# Joiners combine signs in emoji and in Persian. Next to ASCII they do nothing.
_STRAY_JOINER = re.compile(r"(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])")

# Tokens of chat templates: <|im_end|>, </s>, <end_of_turn>, [INST] and similar ones.
_USUAL_TOKEN = re.compile(
    r"<(?=[|｜][^\s|｜<>]{1,64}[|｜]>"
    r"|/?(?:s|bos|eos|pad|unk|mask|think|tool_call|tool_response|start_of_turn|end_of_turn)>"
    r"|</?SYS>>)"
    r"|\[(?=/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT)\])"
)
_BROKEN = {"<": "‹", "[": "［"}

# Letters of other scripts and signs that look like those of the tag.
_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("‹〈⟨≺˂ᐸ❮", "<"),
        **dict.fromkeys("∕⁄╱⧸", "/"),
        **dict.fromkeys("аɑα", "a"),
        **dict.fromkeys("сϲ", "c"),
        **dict.fromkeys("ԁ", "d"),
        **dict.fromkeys("еҽ", "e"),
        **dict.fromkeys("ӏɩⅼ", "l"),
        **dict.fromkeys("пո", "n"),
        **dict.fromkeys("оοօ", "o"),
        **dict.fromkeys("г", "r"),
        **dict.fromkeys("ѕ", "s"),
        **dict.fromkeys("тτ", "t"),
        **dict.fromkeys("ˍ‿", "_"),
    }
)


def inert(text: str, special_tokens: Iterable[str] = ()) -> str:
    """Return a text that cannot end a turn, close the tag or hide characters.

    Args:
        text: Untrusted text.
        special_tokens: Special tokens of the tokenizer that will read the text. Tokens of common
            chat templates are always neutralised.
    """
    plain = well_formed(text)
    if not plain.isprintable():
        plain = _STRAY_JOINER.sub("", plain.translate(_TABLE))
    plain = _USUAL_TOKEN.sub(lambda match: _BROKEN[match[0]], plain)
    own = _expression(tuple(special_tokens))
    if own is not None:
        plain = own.sub(lambda match: _broken(match[0]), plain)
    return without_marks(plain)


def without_marks(text: str) -> str:
    """Break everything in a text that looks like the tag of recalled notes."""
    folded = text if text.isascii() else "".join(map(_folded, text))
    places = [match.start() for match in _MARK.finditer(folded)]
    if not places:
        return text
    characters = list(text)
    for place in places:
        characters[place] = _BROKEN["<"]
    return "".join(characters)


def _folded(character: str) -> str:
    """Return the ASCII character that a character looks like, or the character itself."""
    if character.isascii():
        return character
    normal = unicodedata.normalize("NFKC", character)
    plain = normal.casefold().translate(_LOOKALIKES)
    return plain if len(plain) == 1 else character


@lru_cache(maxsize=16)
def _expression(tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    # Templates use no token of one character.
    names = {token for token in tokens if len(token.strip()) > 1}
    if not names:
        return None
    longest_first = sorted(names, key=len, reverse=True)
    escaped = map(re.escape, longest_first)
    return re.compile("|".join(escaped))


def _broken(token: str) -> str:
    """Return a special token as plain text."""
    first = token[0]
    rest = token[1:]
    if first in _BROKEN:
        return _BROKEN[first] + rest
    return f"{first} {rest}"
