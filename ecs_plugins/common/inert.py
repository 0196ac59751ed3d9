"""Neutralisation of untrusted text before a model, a page or a terminal shows it.

The text cannot end its turn, close the marks around it or hide characters from the reader. Changes
are visible. Letters, line breaks and all other characters stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ecs_plugins.common.text import well_formed

TAG = "recalled_notes"
"""Tag around recalled text."""

_MARK = re.compile(rf"<(?=\s*+(?:/\s*+)?{TAG})", re.IGNORECASE)

_BREAKS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PLAIN = "\t\n\r\u200c\u200d\ufe0e\ufe0f"
"""Controls that stay; joiners and selectors of variants stay where they form a sign."""

# Default_Ignorable_Code_Point of Unicode, less the characters of the category Cf.
_IGNORED_RANGES = (
    (0x34F, 0x34F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
)

# Joiners and selectors form signs with others in emoji and in Persian. Next to ASCII they do
# nothing, and a second one in a row hides data.
_STRAY_JOINER = re.compile(
    r"(?<![^\x00-\x7f])[\u200c\u200d\ufe0e\ufe0f]"
    r"|[\u200c\u200d](?![^\x00-\x7f])"
    r"|(?<=[\u200c\u200d])[\u200c\u200d]+|(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]+"
)

# The families of brackets of special tokens: <|im_end|>, <|turn>, <turn|>, [|user|], <seed:bos>,
# <end_of_turn>, <<SYS>>, [/THINK], [gMASK], ]~b], and the usual short names.
_USUAL_TOKEN = re.compile(
    r"<(?=/?[|][^\s|<>]{1,64}[|]?>"
    r"|/?[^\s|<>]{1,64}[|]>"
    r"|/?[A-Za-z]\w*(?:[:_][\w-]+)+>"
    r"|/?(?i:s|bos|eos|sop|eop|eot|eom|pad|unk|cls|sep|mask|think)>"
    r"|</?[A-Z]+>>)"
    r"|\[(?=/?(?:[|][^\s|\[\]]{0,64}[|]|[a-z]?[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*)\]|\w{1,16}~\[)"
    r"|\](?=~[^\s\[\]]{1,16}[\[\]])"
)
_WIDE = str.maketrans("＜＞［］｜／～：＿▁", "<>[]|/~:__")
_BROKEN = {"<": "‹", "[": "［", "]": "］"}

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
    plain = _visible(well_formed(text))
    plain = _with_broken(plain, _USUAL_TOKEN, plain.translate(_WIDE))
    own = _expression(tuple(special_tokens))
    if own is not None:
        plain = own.sub(lambda match: _broken(match[0]), plain)
    return without_marks(plain)


def inert_values(value: Any) -> Any:
    """Return JSON values with every text in them neutralised."""
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, dict):
        return {inert(key): inert_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [inert_values(each) for each in value]
    return value


def without_marks(text: str) -> str:
    """Break everything in a text that looks like the tag of recalled notes."""
    folded = text if text.isascii() else "".join(map(_folded, text))
    return _with_broken(text, _MARK, folded)


def _visible(text: str) -> str:
    """Return a text without characters that nobody sees; controls are shown as U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    table: dict[int, str | None] = {}
    for character in set(text).difference(_PLAIN):
        category = unicodedata.category(character)
        if character in _BREAKS:
            table[ord(character)] = "\n"
        elif category == "Cc":
            table[ord(character)] = "\ufffd"
        elif category == "Cf" or _is_ignored(ord(character)):
            table[ord(character)] = None
    return _STRAY_JOINER.sub("", text.translate(table))


def _is_ignored(code: int) -> bool:
    return any(first <= code <= last for first, last in _IGNORED_RANGES)


def _with_broken(text: str, pattern: re.Pattern[str], folded: str) -> str:
    """Return a text with other brackets where a pattern matches its folded form."""
    places = [(match.start(), folded[match.start()]) for match in pattern.finditer(folded)]
    if not places:
        return text
    characters = list(text)
    for place, bracket in places:
        characters[place] = _BROKEN[bracket]
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
