"""What an answer teaches: demand follows what it rested on."""

import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.teaching import taught
from ecs_plugins.memory.types import Evidence
from ecs_plugins.ranking.embedder import FakeEmbedder

FACTS = ["My sister Quilla keeps bees in Tarrow.", "My sister Quilla paints in Oslo."]
QUESTION = "Where does my sister Quilla keep bees?"


@pytest.fixture
def memory():
    with EntropicMemory.open(embedder=FakeEmbedder()) as opened:
        opened.add(FACTS)
        yield opened


def energies(memory):
    """F of each fact, in their order."""
    memory.sleep()
    found = {}
    for each in memory.memories():
        found[each.text] = memory.explain(each.id).free_energy.total
    return [found[text] for text in FACTS]


def recalled(memory):
    """Ids of the facts after a recall of both."""
    ids = {each.text: each.id for each in memory.recall(QUESTION, k=2, threshold=-1)}
    return [ids[text] for text in FACTS]


def test_what_the_answer_rests_on_is_safer_and_what_was_recalled_in_vain_less_so(memory):
    with EntropicMemory.open(embedder=FakeEmbedder()) as untaught:
        untaught.add(FACTS)
        untaught.observe(QUESTION, "In Tarrow.", recalled(untaught))
        first, second = energies(untaught)
    used, unused = recalled(memory)
    shares = {used: 0.9, unused: 0.0}
    memory.observe(QUESTION, "In Tarrow.", [used, unused], shares=shares)
    taught_first, taught_second = energies(memory)
    assert taught_first < first
    assert taught_second - taught_first > second - first


@pytest.mark.parametrize(
    ("demand", "share", "after"),
    [(0.2, 0.0, 0.0), (2.0, 0.0, 1.5), (1.0, 0.5, 1.0), (1.0, 1.0, 1.5)],
)
def test_half_an_event_is_given_or_taken_and_no_more_than_there_is(demand, share, after):
    evidence = Evidence(created=0, updated=7, last_seen=7, demand=demand)
    assert taught(evidence, share, step=7).demand == pytest.approx(after)


def test_an_id_that_is_unknown_teaches_nothing(memory):
    memory.observe(QUESTION, "Hm.", shares={"unknown": 1.0})
    before = energies(memory)
    memory.observe(QUESTION, "Hm.", shares={"unknown": 1.0})
    assert energies(memory) == pytest.approx(before)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_no_probability_is_refused(memory, share):
    with pytest.raises(InvalidInputError, match="lies in"):
        memory.observe(QUESTION, "Hm.", shares={"a": share})
