"""Probability that anything is relevant to a question."""

from dataclasses import replace

import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.memory.relevance import (
    DEFAULT,
    Encounter,
    QueryReading,
    Scale,
    encounter,
    probability,
    read,
    relevance,
)
from ecs_plugins.memory.store.queries import Access
from ecs_plugins.ranking.embedder import FakeEmbedder

MET = Encounter(cosine=0.45, fourth=0.3, fit=0.3, items=30, unknown=0.0, is_about_somebody=False)


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ("Where do I live?", QueryReading("live", (), True)),
        ("What is Ada's job in Oslo?", QueryReading("ada's job oslo", ("ada", "oslo"), False)),
        ("Who am I?", QueryReading("Who am I?", (), True)),
        ("Welche Rasse ist mein Hund?", QueryReading("rasse hund", (), True)),
        ("¿Dónde vivo?", QueryReading("vivo", (), False)),
        ("我住在哪里？", QueryReading("我住 住在 在哪 哪里", (), True)),
    ],
)
def test_a_question_is_read_as_its_content_its_names_and_whom_it_is_about(query, question):
    assert read(query) == question


@pytest.mark.parametrize(
    ("change", "is_likelier"),
    [
        ({"cosine": 0.5, "fourth": 0.35}, True),
        ({"fit": 0.5}, True),
        ({"is_about_somebody": True}, True),
        ({"items": 1000}, False),
        ({"unknown": 1.0}, False),
        ({"fourth": 0.1}, False),
    ],
)
def test_candidates_decide_if_anything_is_relevant(change, is_likelier):
    changed = probability(replace(MET, **change))
    assert (changed > probability(MET)) == is_likelier


def test_the_best_has_the_probability_that_there_is_anything_and_the_others_less():
    scores = relevance(np.array([0.1, 0.3, 0.2]), MET)
    assert scores[1] == pytest.approx(probability(MET), abs=1e-9)
    assert scores[1] > scores[2] > scores[0]


def test_an_encounter_summarises_the_candidates():
    question = QueryReading("brother live", ("ada", "bob"), False)
    cosines = np.array([0.2, 0.6, 0.1, 0.4, 0.3])
    met = encounter(question, cosines, cosines / 2, items=9, known=["ada"])
    assert met == Encounter(
        cosine=0.6, fourth=0.2, fit=0.3, items=9, unknown=0.5, is_about_somebody=True
    )


def test_cosines_of_another_embedder_are_brought_to_the_default_ones_units():
    narrow = Scale(mean=0.7, deviation=0.05)
    cosines = np.array([0.7, 0.75, 0.9])
    scaled = narrow.to_default(cosines)
    deviations = (scaled - DEFAULT.mean) / DEFAULT.deviation
    assert deviations == pytest.approx([0.0, 1.0, 4.0])
    assert DEFAULT.to_default(cosines).tolist() == cosines.tolist()


def test_near_items_pass_and_far_items_do_not():
    least = MemoryConfig().threshold
    near = replace(MET, is_about_somebody=True)
    far = replace(MET, cosine=0.15, fourth=0.12, fit=0.08)
    assert probability(near) > least > probability(far)


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


def test_a_recall_judges_answers_above_their_company(monkeypatch) -> None:
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(64)) as memory:
        answer, other = memory.add(["Ada keeps bees on the roof.", "Ben swims in the lake."])
        noted: list[Access] = []
        monkeypatch.setattr(memory._store.pending, "note", lambda _, access: noted.append(access))
        found = memory.recall("Who keeps bees on the roof?", k=2, threshold=-1)
    assert [each.id for each in found] == [answer, other]
    (access,) = noted
    assert access.items[answer] > 0.9
    assert access.items[other] < 0.01
    # As evidence for the answer they are ordered alike, but not told apart so sharply.
    assert found[1].score > 0.01
