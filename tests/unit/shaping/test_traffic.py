"""Answers of an application teach shaping: numbers are kept of them, and no text."""

import json

import pytest

from ecs_plugins import ContextShaper, FakeLanguageModel
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.shaping.traffic import MIN_TO_LEARN, ShapingTraffic, learned_from_traffic

QUESTION = "Who built the Eiffel Tower?"
PASSAGES = ["Tickets cost 28 euros.", "Gustave Eiffel built it.", "The Louvre is a museum."]
ANSWER = "Gustave Eiffel built it."


@pytest.fixture
def shaper():
    return ContextShaper(FakeLanguageModel())


@pytest.fixture
def traffic(tmp_path):
    return ShapingTraffic(tmp_path / "traffic.jsonl")


def line(used=True, **changed):
    """An answer that used the first of two passages, whose numbers differ."""
    passages = [
        {"parts": {"utility": 1.0, "explained": 0.6, "shared_words": 0.5}, "used": used},
        {"parts": {"utility": 0.1, "explained": 0.1, "shared_words": 0.1}, "used": False},
    ]
    plain = {"version": 1, "model": "fake", "signal": "query_likelihood+bm25"}
    return json.dumps({**plain, "passages": passages, **changed})


@pytest.fixture
def written(traffic):
    def write(*lines):
        traffic.path.write_text("\n".join(lines), encoding="utf-8")
        return traffic.path

    return write


def test_numbers_of_an_answer_are_kept_and_no_text(shaper, traffic):
    shaped = shaper.shape(QUESTION, PASSAGES)
    assert traffic.add(shaped, shaper.attribute(QUESTION, PASSAGES, ANSWER))
    text = traffic.path.read_text(encoding="utf-8")
    assert "Eiffel" not in text
    kept = json.loads(text)
    assert [passage["used"] for passage in kept["passages"]] == [False, True, False]
    assert kept["passages"][1]["parts"]["utility"] == shaped.verdicts[1].utility


def test_empty_results_are_not_added_and_other_passages_refused(shaper, traffic):
    shaped = shaper.shape(QUESTION, PASSAGES)
    assert not traffic.add(shaped, shaper.attribute(QUESTION, PASSAGES, "I don't know."))
    assert not traffic.path.exists()
    with pytest.raises(InvalidInputError, match="2 passages"):
        traffic.add(shaped, shaper.attribute(QUESTION, PASSAGES[:2], ANSWER))


def test_a_file_that_cannot_be_written_is_said(shaper, tmp_path):
    shaped = shaper.shape(QUESTION, PASSAGES)
    attribution = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    with pytest.raises(StorageError, match="another place"):
        ShapingTraffic(tmp_path).add(shaped, attribution)


def test_a_probability_is_learned_from_citations(written):
    path = written(*[line()] * MIN_TO_LEARN)
    fit, answers = learned_from_traffic(path)
    assert answers == MIN_TO_LEARN
    used, left = ({"explained": share, "shared_words": share} for share in (0.6, 0.1))
    assert fit.of(used) > 0.5 > fit.of(left)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line()] * (MIN_TO_LEARN - 1), "wait for more"),
        ([line(used=False)] * MIN_TO_LEARN, "alike"),
        ([line(), "{}"], ":2: "),
        ([line(used=7.0)], ":1: "),
        ([], "nobody"),
    ],
)
def test_unusable_traffic_is_refused_clearly(written, lines, message):
    with pytest.raises(InvalidInputError, match=message):
        learned_from_traffic(written(*lines))


def test_each_model_is_learned_about_by_itself(written):
    path = written(*[line()] * MIN_TO_LEARN, *[line(model="other")] * 3)
    with pytest.raises(ConfigurationError, match="--model"):
        learned_from_traffic(path)
    assert learned_from_traffic(path, "fake")[1] == MIN_TO_LEARN
