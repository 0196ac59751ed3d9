"""Scores of items for a question."""

from dataclasses import replace

import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.relevance import (
    DEFAULT,
    Encounter,
    QueryReading,
    Scale,
    encounter,
    read,
    relevance,
)
from ecs_plugins.ranking.embedder import FakeEmbedder

MET = Encounter(items=30, unknown=0.0, is_about_somebody=False)


@pytest.mark.parametrize(
    ("query", "content", "names", "is_personal"),
    [
        ("Where do I live?", "live", (), True),
        ("What is Ada's job in Oslo?", "ada's job oslo", ("ada", "oslo"), False),
        ("Who am I?", "Who am I?", (), True),
        ("Welche Rasse ist mein Hund?", "rasse hund", (), True),
        ("¿Dónde vivo?", "dónde vivo", (), False),
        ("我住在哪里？", "我住 住在 在哪 哪里", (), True),
    ],
)
def test_a_question_is_read_without_function_words(query, content, names, is_personal):
    reading = read(query)
    assert (reading.content, reading.names, reading.is_personal) == (content, names, is_personal)
    assert reading.asks


def score_of(cosine=0.4, coverage=0.2, **changes):
    (score,) = relevance(np.array([cosine]), np.array([coverage]), replace(MET, **changes))
    return score


@pytest.mark.parametrize(
    ("change", "is_likelier"),
    [
        ({"cosine": 0.5}, True),
        ({"coverage": 0.5}, True),
        ({"is_about_somebody": True}, True),
        ({"items": 1000}, False),
        ({"unknown": 1.0}, False),
    ],
)
def test_each_feature_moves_the_score_its_way(change, is_likelier):
    assert (score_of(**change) > score_of()) == is_likelier


def test_an_encounter_counts_unknown_names():
    question = QueryReading("brother live", ("ada", "bob"), False)
    met = encounter(question, items=9, known=["ada"])
    assert met == Encounter(items=9, unknown=0.5, is_about_somebody=True)


def test_cosines_of_another_embedder_are_brought_to_the_default_ones_units():
    narrow = Scale(mean=0.7, deviation=0.05)
    cosines = np.array([0.7, 0.75, 0.9])
    scaled = narrow.to_default(cosines)
    deviations = (scaled - DEFAULT.mean) / DEFAULT.deviation
    assert deviations == pytest.approx([0.0, 1.0, 4.0])
    assert DEFAULT.to_default(cosines).tolist() == cosines.tolist()


def test_a_memory_measures_how_near_unrelated_texts_lie_until_it_is_embedded_anew(open_memory):
    memory = open_memory()
    memory.add([f"subject{number} does thing{number}" for number in range(60)])
    assert memory._store.scale == DEFAULT
    scale = memory.admin.calibrate()
    assert scale.deviation > 0
    assert scale != DEFAULT
    again = open_memory()
    assert again._store.scale == pytest.approx(scale)
    again.admin.reembed(FakeEmbedder(48))
    assert again._store.scale == DEFAULT
    last = open_memory(embedder=FakeEmbedder(48))
    assert last._store.scale == DEFAULT


def test_too_few_items_measure_nothing(open_memory):
    memory = open_memory()
    memory.add("one text")
    with pytest.raises(InvalidInputError, match="too few"):
        memory.admin.calibrate()


def test_the_same_rule_finds_the_same_under_an_embedder_of_other_cosines(open_memory, tmp_path):
    texts = [f"subject{number} does thing{number}" for number in range(60)]
    plain = open_memory()
    plain.add(texts)
    narrow = open_memory(path=tmp_path / "narrow.db", embedder=Narrow(FakeEmbedder(32)))
    narrow.add(texts)
    before = scores_of(plain), scores_of(narrow)
    assert before[0] != pytest.approx(before[1], abs=0.02)
    plain.admin.calibrate()
    narrow.admin.calibrate()
    assert scores_of(plain) == pytest.approx(scores_of(narrow), abs=0.02)


def scores_of(memory):
    recalled = memory.recall("who does anything at all?", threshold=-1.0, k=9, record=False)
    return [each.score for each in recalled]


class Narrow:
    """An embedder of whose texts all lie near each other."""

    name = "narrow"
    dimension = 33

    def __init__(self, inner):
        self._inner = inner

    def embed_documents(self, texts):
        vectors = self._inner.embed_documents(texts)
        shared = np.full((len(vectors), 1), 2.0, dtype=np.float32)
        return np.concatenate([vectors, shared], axis=1)

    def embed_query(self, text):
        return self.embed_documents([text])[0]
