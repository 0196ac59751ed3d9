"""Tests of the learned numbers of the default."""

import json

import numpy as np
import pytest

from benchmarks.datasets.own_words import read_own_words
from benchmarks.evidence import fusion
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

TOPICS = [
    "ferry",
    "bakery",
    "harbour",
    "museum",
    "bridge",
    "library",
    "school",
    "hospital",
    "station",
    "garden",
]


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    units = tuple(f"The {topic} opens at {n} each day." for n, topic in enumerate(TOPICS))
    path = tmp_path_factory.mktemp("journal") / "own.jsonl"
    recorder = fusion.Recorder(FakeLanguageModel(), FakeEmbedder())
    questions = []
    for n, topic in enumerate(TOPICS):
        question = EvidenceQuestion(topic, f"When does the {topic} open?", (), units, (n,), topic)
        questions.append(question)
        fusion.append(path, recorder.record(question))
    rows = fusion.read_rows(path)
    return [fusion.listed(question, rows[question.id]) for question in questions]


def test_fitted_weights_put_evidence_first(lists):
    weights = fusion.fit_weights([lists], signal=True)
    rankers = fusion.fit_weights([lists], signal=False)
    assert set(weights) == {"signal", "bm25", "dense"}
    orders = fusion.orders(weights, rankers)
    for method in ("BM25 + embeddings", "default", "signal=None"):
        assert fusion.figures(lists, orders[method])["first"] == 1.0


def test_probability_tells_lists_with_evidence_from_lists_without(lists):
    weights = fusion.fit_weights([lists], signal=True)
    fit = fusion.fit_probability([lists], weights)
    figures = fusion.probabilities(lists, weights, fit, 0.1)
    assert figures["Brier skill"] > 0.0
    assert figures["evidence kept"] == 1.0
    assert figures["others dropped"] > 0.5


def test_list_without_evidence_keeps_the_other_numbers(lists):
    left = lists[3].without_evidence()
    assert not left.is_evidence.any()
    assert len(left.texts) == len(TOPICS) - 1
    assert np.array_equal(left.cos, np.delete(lists[3].cos, 3))
    assert left.by_token[3] == lists[3].by_token[4]


def test_help_centre_has_sixty_answers_with_three_questions_in_other_words():
    questions = read_own_words("help")
    assert len(questions) >= 180
    assert len({question.evidence for question in questions}) >= 60
    assert all(len(question.evidence) == 1 for question in questions)
    chats = read_own_words("chats")
    assert all(question.units[question.evidence[0]] for question in chats)


def test_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps([{"title": "x"}]), encoding="utf-8")
    with pytest.raises(InvalidInputError, match="does not look like faq"):
        read_own_words("faq", path)
