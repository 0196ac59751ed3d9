"""Texts that are no valid Unicode: what a cut through UTF-16 or a bad PDF leaves behind."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """``text`` with U+FFFD for every half of a surrogate pair; as it is where there is none.

    Tokenizers refuse such a text, and all others of the same batch with it. Halves that stand
    side by side become the character that they were.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
