"""Kept text of many formats and scripts, reviewed by people.

``snippets.txt`` lists texts behind ``===`` and their name, and behind each ``---`` what stays if
the next piece that says something is chosen. None of it says anything else than its text.
"""

from pathlib import Path

import pytest

from ecs_plugins.shaping.sentences import pieces_of, with_needs
from ecs_plugins.shaping.spans import join_spans

FILE = Path(__file__).parent / "snippets.txt"


def snippets():
    """Return texts by name, with the kept text for each piece."""
    listed = {}
    for part in FILE.read_text("utf-8").removeprefix("=== ").split("\n=== "):
        name, _, body = part.partition("\n")
        text, *outputs = body.removesuffix("\n").split("\n---\n")
        listed[name] = text, outputs
    return listed


SNIPPETS = snippets()


def kept_by_each_piece(text):
    pieces = pieces_of(text)
    kept = []
    for number, piece in enumerate(pieces):
        if piece.said:
            needed = [pieces[place] for place in with_needs(pieces, [number])]
            kept.append(join_spans([(each.start, each.end) for each in needed], text))
    return kept


@pytest.mark.parametrize("name", SNIPPETS)
def test_kept_text_equals_the_reviewed_snippets(name):
    text, outputs = SNIPPETS[name]
    assert kept_by_each_piece(text) == outputs


def test_many_are_listed():
    assert sum(len(outputs) for _, outputs in SNIPPETS.values()) > 120
