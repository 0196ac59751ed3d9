"""Texts of strangers: half of a surrogate pair, escape sequences of terminals."""

from __future__ import annotations

import json


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
