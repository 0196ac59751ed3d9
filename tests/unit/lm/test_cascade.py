"""Forests, and attention over them against attention under a dense mask in float64."""

import itertools

import numpy as np
import pytest
import torch
from attention import attend_one_by_one, attention, planned, prefix_of, row_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import engine as engine_for
from tiny_models import ids, model, token_request

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring import modules, varlen
from ecs_plugins.lm.scoring.cascade import CascadeForward, CascadePlan
from ecs_plugins.lm.scoring.forest import MIN_SAVED, plant
from ecs_plugins.lm.scoring.packed import Batch, prefill, score
from ecs_plugins.lm.scoring.packs import TokenBudget
from ecs_plugins.lm.scoring.prefix import PrefixState, PrefixTree
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.request import Path
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.twin import planned_attention, twin_of
from ecs_plugins.lm.scoring.varlen import VarlenPlan

pytestmark = pytest.mark.model

TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    """The attention of a card, computed here."""
    monkeypatch.setattr(varlen, "attend_sequences", attend_one_by_one)


# --- Forests -----------------------------------------------------------------------------------

ALPHABET = st.integers(0, 2)
SEQUENCE = st.lists(ALPHABET, min_size=1, max_size=60).map(tuple)
SEQUENCES = st.lists(SEQUENCE, min_size=1, max_size=9)
HEAD = tuple(range(20))


def assert_sound(sequences, forest):
    """Every sequence is spelt by its rows, and every row belongs to one node."""
    for n, sequence in enumerate(sequences):
        depths = range(len(sequence))
        rows = list(forest.rows(n, depths))
        assert tuple(forest.tokens[row] for row in rows) == sequence
        positions = forest.positions()
        assert [positions[row] for row in rows] == list(depths)
    covered = 0
    for node in forest.nodes:
        assert node.start == covered
        assert node.stop <= node.end <= len(forest.tokens)
        covered = node.stop
    assert covered == len(forest.tokens)
    for path in forest.paths:
        for ancestor, node in itertools.pairwise(path):
            assert ancestor.stop <= node.start < ancestor.end
            assert node.depth == ancestor.depth + ancestor.length


@settings(max_examples=100, deadline=None)
@given(SEQUENCES, st.integers(1, 30))
def test_a_shared_head_stands_once_if_it_saves_enough(sequences, extra) -> None:
    head = tuple(range(10, 10 + MIN_SAVED))
    longer = [head + sequence for sequence in sequences]
    another = (*head, *range(100, 100 + extra))
    forest = plant([*longer, another])
    assert sum(row == 10 for row in forest.tokens) == 1
    for planted in (sequences, longer):
        assert_sound(planted, plant(planted))


# --- Attention ---------------------------------------------------------------------------------

ALIKE = st.lists(st.integers(0, 1), min_size=1, max_size=60).map(tuple)
FOREST = st.lists(ALIKE, min_size=1, max_size=6).map(plant)
PAST = st.sampled_from([0, 1, 7, 40])
GROUPS = st.lists(st.tuples(FOREST, PAST), min_size=1, max_size=3)


def groups_of(parts):
    groups = []
    for n, (forest, past) in enumerate(parts):
        prefix = prefix_of(10 * n, past)
        groups.append((forest, prefix))
    return groups


@settings(max_examples=40, deadline=None)
@given(parts=GROUPS)
def test_a_row_sees_its_prefix_its_ancestors_and_itself(parts) -> None:
    got, wanted = attention(groups_of(parts))
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    parts=GROUPS,
    repeated=st.sampled_from([0, 20, 10_000]),
)
def test_so_it_does_with_every_node_a_sequence(parts, repeated) -> None:
    groups = groups_of(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen, "REPEATED", repeated)
        got, wanted = attention(groups, kind=VarlenPlan)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", [CascadePlan, VarlenPlan])
@pytest.mark.parametrize("between", [False, True])
def test_a_context_that_many_share_is_seen_by_those_behind_it_alone(kind, between) -> None:
    context = prefix_of(7, 300)
    leaves = plant([(n, n + 1, n + 2) for n in range(100)])
    other = (plant([(1, 2)]), PrefixState())
    more = plant([(5, 6)])
    groups = [(leaves, context), (more, context), other]
    if between:
        groups.insert(1, other)
    got, wanted = attention(groups, kind=kind)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention_mask": torch.zeros(1)}, "mask of its own"),
        ({"softcap": 30.0}, "softcap"),
        ({"sliding_window": 2}, "window of 2"),
        ({"attention_plan": None}, "do not receive"),
    ],
)
def test_an_impossible_plan_is_refused(options, reason) -> None:
    group = (plant([(1, 2, 3)]), PrefixState())
    plan, rows = planned(CascadePlan, [group])
    arguments = {"attention_mask": None, "attention_plan": plan, **options}
    with pytest.raises(ScoringError, match=reason):
        planned_attention(torch.nn.Module(), *row_of(rows), **arguments)


# --- The forward and the packs around it -------------------------------------------------------


@pytest.fixture(scope="module")
def engine():
    return engine_for()


@pytest.fixture
def forward(engine):
    return engine._forward(ScoringPath.CASCADE)


def test_tokens_of_a_shared_prefix_are_counted_for_the_first_request(engine) -> None:
    prefix = ids(1, 60)
    engine.forget()
    one = token_request(prefix, seed=1)
    other = token_request(prefix, seed=20)
    first, second = engine.score([one, other])
    assert first.computed_tokens == 59 + second.computed_tokens


def test_prefixes_that_begin_alike_are_computed_once(forward) -> None:
    head = ids(4, 60)
    wanted = [
        head + ids(5, 10),
        head + ids(6, 3),
        ids(7, 8),
    ]
    with torch.inference_mode():
        cache = PrefixTree(2**24)
        budget = TokenBudget()
        made = [prefill(forward, each, budget, cache) for each in wanted]
    assert [state.ids for state, _ in made] == wanted
    assert [spent for _, spent in made] == [70, 3, 8]


def test_long_prefixes_do_not_pile_up_in_one_row(forward, monkeypatch) -> None:
    numbers = []
    run = CascadeForward.__call__

    def noting(self, groups, *rest, **options):
        numbers.append(len(groups))
        return run(self, groups, *rest, **options)

    monkeypatch.setattr(CascadeForward, "__call__", noting)
    batches = []
    for number in range(5):
        path = Path(ids(50 + number, 4), (3,))
        batches.append(Batch(ids(number, 100), (path,)))
    with torch.inference_mode():
        score(forward, batches, TokenBudget(40), PrefixTree(0))
    assert max(numbers) <= 2


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "phi3"])
@pytest.mark.parametrize(
    "wanted",
    [
        (0,),
        (3, 4, 10),
        (11,),
        tuple(range(12)),
    ],
)
def test_the_wanted_rows_are_those_of_the_model(family, wanted, monkeypatch) -> None:
    monkeypatch.setattr(modules, "BLOCK_ROWS", 5)
    original, row = model(family), ids(11, 12)
    with torch.inference_mode():
        forward = CascadeForward(Runner(original, family))
        group = (plant([row]), PrefixState())
        logits, _ = forward([group], wanted)
        whole = original(torch.tensor([row])).logits[0]
    expected = whole[list(wanted)]
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)


def test_the_twin_shares_the_weights_and_leaves_the_model_alone() -> None:
    original = model("llama")
    kind = original.config._attn_implementation
    second = twin_of(original)
    assert {p.data_ptr() for p in second.parameters()} == {
        p.data_ptr() for p in original.parameters()
    }
    assert original.config._attn_implementation == kind
