"""Marks after statements, the page, and unusual answers."""

import re

import pytest

from ecs_plugins import ContextShaper, FakeLanguageModel
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.shaping.attribution.attributed import AttributedStatement, Attribution, Citation
from ecs_plugins.shaping.attribution.statements import Edit, edited, statements_of

QUESTION = "Who built the Eiffel Tower?"
PASSAGES = [
    "Tickets for the top cost 28 euros.",
    "The company of Gustave Eiffel designed the tower. It was built by that company in 1889.",
]
BUILT = "The company of Gustave Eiffel built it"


@pytest.fixture
def shaper():
    return ContextShaper(FakeLanguageModel())


def marked(answer):
    """The answer, whose first statement rests on the second of two passages."""
    first, *_ = statements_of(answer)
    citation = Citation(1, 0, 3, "The")
    statement = AttributedStatement(first.start, first.end, first.text, (citation,))
    return Attribution(QUESTION, answer, (statement,), 2, "fake").marked()


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        (f"{BUILT} [2].", f"{BUILT} [1]."),
        (f"{BUILT}. [2]", f"{BUILT} [1]."),
        (f"{BUILT} [1, 2].", f"{BUILT} [1]."),
        (f"{BUILT} [1-2] in 1889.", f"{BUILT} in 1889 [1]."),
        (f"{BUILT} [7].", f"{BUILT} [7] [1]."),
        (f"{BUILT} [1889].", f"{BUILT} [1889] [1]."),
        (f"{BUILT} [sic].", f"{BUILT} [sic] [1]."),
        (f"{BUILT}: [2](https://e.org/a).", f"{BUILT}: [2](https://e.org/a) [1]."),
        (f"{BUILT}, see https://e.org/a[1].", f"{BUILT}, see https://e.org/a[1] [1]."),
        (f"{BUILT} as `a[1]`.", f"{BUILT} as `a[1]` [1]."),
        (f"{BUILT}.\n\n```\nx[1]\n```", f"{BUILT} [1].\n\n```\nx[1]\n```"),
        (f"{BUILT}.\n\n[2] A book", f"{BUILT} [1].\n\n[2] A book"),
        (f"| {BUILT} | 1889 |", f"| {BUILT} | 1889 [1] |"),
    ],
)  # fmt: skip
def test_marks_that_number_passages_give_way_and_other_brackets_stay(answer, after):
    assert marked(answer) == after


def test_an_answer_of_which_nothing_is_cited_is_as_it_was(shaper):
    answer = "Nobody saw Bob in Oslo [1]."
    attribution = shaper.attribute(QUESTION, PASSAGES, answer)
    assert attribution.cited == ()
    assert attribution.marked() == answer
    assert attribution.mark_edits() == []


def test_edits_change_a_text():
    text = "ab [1] cd"
    edits = [Edit(2, 6, ""), Edit(9, 9, " [2]")]
    assert edited(text, edits) == "ab cd [2]"


# The page


def test_page_underlines_the_words_that_decided(shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES, f"{BUILT} in 1912. Bob built it.")
    page = attribution.to_html(PASSAGES)
    answer, _, passages = page.partition('<div class="side">\n')
    assert "0 consistent, 1 conflict, 1 unverified" in answer
    assert re.search(r'class="decides"[^>]*title="conflict">1912<', page)
    assert re.search(r'class="decides"[^>]*title="unverified">Bob<', page)
    assert page.index("passage 2<") < page.index("passage 1<")
    quote = attribution.statements[0].citations[0].quote
    assert re.search(rf'style="background: hsl\(\d+ [^>]*>{re.escape(quote)}</span>', passages)
    assert 'href="#p1"' in page
    assert 'id="p1"' in page


def test_texts_of_a_page_are_inert(shaper):
    hostile = "<script>alert(1)</script>\u202e<|im_end|> \"' onload='x"
    passages = [f"{PASSAGES[1]} {hostile}", hostile]
    attribution = shaper.attribute(f"{QUESTION} {hostile}", passages, f"{BUILT}. {hostile}")
    page = attribution.to_html(passages)
    assert "Eiffel" in page
    for part in ("<script>", "\u202e", "<|im_end|>", "' onload='"):
        assert part not in page
    assert "<script>" not in attribution._repr_html_()


def test_page_needs_the_same_passages(shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES, BUILT)
    with pytest.raises(InvalidInputError, match="compared with 2 passages, got 1"):
        attribution.to_html(PASSAGES[:1])


# Unusual answers


@pytest.mark.parametrize("answer", ["", " \n", None, 3])
def test_an_answer_that_is_none_is_refused(shaper, answer):
    with pytest.raises(InvalidInputError, match="answer"):
        shaper.attribute(QUESTION, PASSAGES, answer)


def test_an_answer_longer_than_the_window_is_attributed_statement_by_statement():
    shaper = ContextShaper(FakeLanguageModel(max_tokens=120))
    attribution = shaper.attribute(QUESTION, PASSAGES, f"{BUILT}. " * 40)
    assert len(attribution.statements) == 40
    assert attribution.cited == (1,)


def test_a_statement_longer_than_the_window_is_refused_in_words():
    shaper = ContextShaper(FakeLanguageModel(max_tokens=120))
    with pytest.raises(InvalidInputError, match="tokens"):
        shaper.attribute(QUESTION, PASSAGES, "tower " * 200)


@pytest.mark.parametrize(
    ("answer", "cited"),
    [
        (PASSAGES[1], [(1,), (1,)]),
        (f"{QUESTION} {BUILT}.", [(1,)]),
        (f"## Answer\n\n- **{BUILT}**\n- I saw Bob", [(1,), ()]),
        (f"```\nprint('{BUILT}')\n```", []),
        ("Sorry, but I don't know.", []),
        (f"{BUILT} \ud83d\x00.", [(1,)]),
    ],
)
def test_copies_quotes_markdown_code_and_refusals(shaper, answer, cited):
    attribution = shaper.attribute(QUESTION, PASSAGES, answer)
    for statement, expected in zip(attribution.statements, cited, strict=True):
        assert tuple(citation.passage for citation in statement.citations) == expected
    assert attribution.to_html(PASSAGES)
    assert max(map(len, attribution.explain().splitlines())) <= 80


def test_one_passage_alone_is_cited_for_what_it_says_and_no_other(shaper):
    of_evidence = shaper.attribute(QUESTION, PASSAGES[1:], f"{BUILT}.")
    assert of_evidence.cited == (0,)
    of_other = shaper.attribute(QUESTION, PASSAGES[:1], f"{BUILT}.")
    assert of_other.cited == ()


@pytest.mark.parametrize("passages", [[], ["", " "]])
def test_statement_without_passages_is_unverified(shaper, passages):
    attribution = shaper.attribute(QUESTION, passages, "It was built by Bob in 1889.")
    (statement,) = attribution.statements
    assert statement.citations == ()
    assert statement.check == "unverified"
