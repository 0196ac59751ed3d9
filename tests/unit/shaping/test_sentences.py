import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.acceptance import Budget
from ecs_plugins.shaping.choosing import prune
from ecs_plugins.shaping.sentences import pieces_of
from ecs_plugins.shaping.spans import gaps, join_spans

TABLE = "Boats:\n| name | berth |\n|---|---|\n| Ida | 4 |\n| Eos | 7 |\n"
LIST = "The crew:\n\n- Ada steers.\n  - Bo helps her.\n- Cy cooks.\n"


def share_of(texts, share):
    return Budget(share * sum(map(len, texts)))


def kept_for(wanted, text):
    """Return the kept text if only the piece with ``wanted`` is chosen."""
    (spans,) = prune(
        "", [text], lambda read: [float(wanted in each) for each in read], [0], Budget(0.0)
    )
    return text if spans is None else join_spans(spans, text)


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("One thing came first. Another followed. Rome won.", "Rome", "Rome won."),
        (
            "It rained a lot, as always here. Ida bought a boat. She painted it red. The end came.",
            "red",
            "Ida bought a boat. She painted it red.",
        ),
        ("The tides\nWater falls slowly at night. It rises at six.", "six", None),
        (
            "# Boats\n\nIda is red, they say, and very old.\n\n# Trams\n\nNine runs late. Ten "
            "is on time today.\n",
            "Nine",
            "# Trams\n\nNine runs late.",
        ),
        (TABLE, "Eos", "Boats:\n| name | berth |\n|---|---|\n| Eos | 7 |"),
        (LIST, "Bo", "The crew:\n\n- Ada steers.\n  - Bo helps her."),
        (
            "Run this first, then wait for a while:\n```\na = 1\n\nb = 2\n```\nThe rest is simple. "
            "It takes an hour.",
            "b = 2",
            "Run this first, then wait for a while:\n```\na = 1\n\nb = 2\n```",
        ),
        (
            "(1 May) Ana: I am back from the sea and slept. The boat was called Eos.",
            "Eos",
            "(1 May) Ana: The boat was called Eos.",
        ),
        ("今天下雨了,而且很久。船是红色的。他走了。", "红色", None),
    ],
)
def test_a_sentence_stays_with_its_antecedent(text, wanted, expected):
    assert kept_for(wanted, text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    "title", ["P. Lind", "J. R. R. Lind", "Otto Brandt Jr.", "Harbour Works Ltd."]
)
def test_a_dot_of_a_name_is_no_end_and_an_initial_no_item(title):
    text = f"{title}\nThe first sentence is about {title} and nobody else. Another one follows it."
    first, *others = pieces_of(text)
    assert text[first.start : first.end] == f"{title}\n"
    assert not first.said
    assert others
    for piece in others:
        assert 0 in piece.needs


def test_lettered_items_stay_together():
    text = "A. Payment is due in May.\nB. Rent is due in June.\nC. Keys are given back.\n"
    assert kept_for("June", text + "\nThe rest is simple.") == text.rstrip()


def _letters(text):
    return sorted("".join(text.split()))


WRITING = st.text(alphabet="ab. \n!?|-#`:。A*1\t\u2028\r", max_size=160)


@settings(deadline=None)
@given(st.lists(WRITING, max_size=4), st.randoms(use_true_random=False))
def test_kept_and_dropped_parts_cover_the_text(texts, draw):
    for text in texts:
        pieces = pieces_of(text)
        assert "".join(text[p.start : p.end] for p in pieces) == text
        assert all(0 <= need < len(pieces) for p in pieces for need in p.needs)
    budget = share_of(texts, 0.4)
    found = prune("", texts, lambda read: [draw.random() for _ in read], [0] * 4, budget)
    for text, spans in zip(texts, found, strict=True):
        if spans is not None:
            kept = "".join(text[start:end] for start, end in spans)
            assert _letters(kept + "".join(gaps(spans, text))) == _letters(text)
            assert "".join(join_spans(spans, text).split()) == "".join(kept.split())


def test_unscored_sentences_stay():
    text = "Ida is red. Bo is blue. Cy is green."
    score = lambda read: [None if "Bo" in each else float(len(each)) for each in read]  # noqa: E731
    (spans,) = prune("", [text], score, [0], share_of([text], 0.4))
    assert "Bo is blue." in join_spans(spans, text)


HULL, ULM, KIEL = "The hull was designed by Ida Berg.", "Ida is from Ulm.", "Bo is from Kiel."
HOPS = [
    f"Eos (ferry)\nEos is red. {HULL} Nine years went by.",
    f"Ida Berg\n{ULM} Tea was what Ida drank at all times of the day and the night.",
    f"Bo Lind\n{KIEL} Rum was what Bo drank at all times of the day and of the night.",
]


SHARED = [HOPS[0], HOPS[1].replace("Ida Berg\nIda is", "Ulm\nMrs Berg is"), HOPS[2]]


@pytest.mark.parametrize(
    ("query", "texts", "kept"),
    [
        ("Who?", HOPS, [f"Eos (ferry)\nEos is red. {HULL}", f"Ida Berg\n{ULM}", ""]),
        ("Who, Bo Lind?", HOPS, [f"Eos (ferry)\nEos is red. {HULL}", "", f"Bo Lind\n{KIEL}"]),
        ("Who?", SHARED, [f"Eos (ferry)\nEos is red. {HULL}", "Ulm\nMrs Berg is from Ulm.", ""]),
    ],
)
def test_a_lead_stays_with_its_passage_and_comes_where_its_title_is_named(query, texts, kept):
    spans = prune(
        query,
        texts,
        lambda read: [float("hull" in t) for t in read],
        [0] * 3,
        Budget(0.37 * sum(map(len, texts))),
    )
    found = zip(spans, texts, strict=True)
    assert [text if span is None else join_spans(span, text) for span, text in found] == kept


def test_the_best_sentences_stay_of_passages_that_stand_well():
    texts = ["Ida is red. Bo is blue.", "Cy is green. Di is grey."]
    for standing, share, expected in (
        (0, 0.6, ["Ida is red. Bo is blue.", ""]),
        (2.85, 0.6, ["Ida is red.", "Di is grey."]),
    ):
        spans = prune(
            "", texts, lambda read: [3.0, 2.5, 0.1, 0.2], [0, standing], Budget(share * 47)
        )
        kept = [t if s is None else join_spans(s, t) for s, t in zip(spans, texts, strict=True)]
        assert kept == expected


PASSAGES = [
    "The tram was late. Anna lives in Rome. Soup is served at noon, as every day.",
    "Nothing else happened.",
]


def shape(**settings):
    settings = {"top_k": 1, "ranker": None, **settings}
    model = FakeLanguageModel(lambda context, text: -4.0 + 3.0 * ("Rome" in context))
    config = ShapingConfig(signal="query_likelihood", **settings)
    return ContextShaper(model, config).shape("Where does Anna live?", PASSAGES)


def test_by_sentences_a_kept_passage_is_shortened_and_the_verdict_is_the_same():
    whole, shaped = shape(), shape(unit="sentence")
    assert shaped.text == "Anna lives in Rome."
    assert whole.text == PASSAGES[0]
    assert [v.kept for v in shaped.verdicts] == [v.kept for v in whole.verdicts]
    assert shaped.verdicts[0].text == PASSAGES[0]
    assert shaped.tokens_after < whole.tokens_after
    assert shaped.ledger.total() > whole.ledger.total()
    assert shaped.to_dict()["passages"][0]["spans"] == [[19, 39]]


def test_dropped_text_is_restored_by_a_stable_id():
    shaped, again = shape(unit="sentence"), shape(unit="sentence")
    assert set(shaped.dropped.values()) == {
        "The tram was late.",
        "Soup is served at noon, as every day.",
        PASSAGES[1],
    }
    assert again.dropped == shaped.dropped
    assert all(shaped.restore(id) == text for id, text in shaped.dropped.items())
    with pytest.raises(InvalidInputError, match="nothing was dropped"):
        shaped.restore("no-such-id")
    assert set(shape().dropped.values()) == {PASSAGES[1]}
