"""Cascade attention against attention under a dense mask in float64."""

import numpy as np
import pytest
import torch
from attention import dense, planned, prefix_of, row_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import model

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring import cascade
from ecs_plugins.lm.scoring.cascade import CascadeForward, cascade_attention, twin_of
from ecs_plugins.lm.scoring.forest import plant
from ecs_plugins.lm.scoring.packed import Batch, prefill, score
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.prefix import PrefixCache, PrefixState
from ecs_plugins.lm.scoring.profile import ScoringPath, profile_of
from ecs_plugins.lm.scoring.request import Continuation, Path, TokenRequest
from ecs_plugins.lm.scoring.runner import Runner, TokenBudget

TOLERANCE = 1e-4
FOREST = st.lists(
    st.lists(st.integers(0, 1), min_size=1, max_size=40).map(tuple), min_size=1, max_size=5
).map(plant)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(FOREST, st.sampled_from([0, 1, 7, 40])), min_size=1, max_size=3))
def test_a_row_sees_its_prefix_its_ancestors_and_itself(parts) -> None:
    groups = [(forest, prefix_of(10 * n, past)) for n, (forest, past) in enumerate(parts)]
    plan, rows = planned(groups)
    query, key, value = row_of(rows)
    got, _ = cascade_attention(torch.nn.Module(), query, key, value, None, cascade_plan=plan)
    wanted = dense(groups, query, key, value)
    np.testing.assert_allclose(got[0].double(), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention_mask": torch.zeros(1)}, "mask of its own"),
        ({"softcap": 30.0}, "softcap"),
        ({"sliding_window": 2}, "window of 2"),
        ({"cascade_plan": None}, "do not receive"),
    ],
)
def test_what_a_cascade_cannot_give_is_refused(options, reason) -> None:
    plan, rows = planned([(plant([(1, 2, 3)]), PrefixState())])
    arguments = {"attention_mask": None, "cascade_plan": plan, **options}
    states = row_of(rows)
    with pytest.raises(ScoringError, match=reason):
        cascade_attention(torch.nn.Module(), *states, **arguments)


# --- The forward and the packs around it ---------------------------------------------------


def ids(seed, number):
    return tuple(int(i) for i in np.random.default_rng(seed).integers(4, 380, size=number))


@pytest.fixture(scope="module")
def engine():
    runner = Runner(model("llama"), "llama")
    return ScoringEngine(runner, profile_of(model("llama"), runner.takes, 10**30))


@pytest.fixture
def forward(engine):
    return engine._forward(ScoringPath.CASCADE)


class Counting:
    """A forward that notes the tokens and prefixes of every row."""

    def __init__(self, forward) -> None:
        self.forward = forward
        self.rows = []

    def __getattr__(self, name):
        return getattr(self.forward, name)

    def __call__(self, groups, rows, **options):
        self.rows.append([len(forest.tokens) for forest, _ in groups])
        return self.forward(groups, rows, **options)


def request(prefix, passages=3, seed=0):
    candidates = tuple(ids(seed + 100 + n, 5 + 3 * n) for n in range(passages))
    return TokenRequest(prefix, ((), *candidates), (Continuation(ids(seed + 50, 6), ((2, 6),)),))


def reference(engine, asked):
    return engine.run(ScoringPath.REFERENCE, asked, range(len(asked.candidates)))[0]


def assert_close(wanted, got):
    assert wanted.keys() == got.keys()
    assert max(float(np.abs(wanted[k] - got[k]).max()) for k in wanted) < TOLERANCE


def test_requests_behind_different_prefixes_share_a_row(engine, monkeypatch) -> None:
    asked = [request(ids(n, 40 + n), seed=n) for n in range(4)]
    counting = Counting(engine._forward(ScoringPath.CASCADE))
    monkeypatch.setitem(engine._forwards, ScoringPath.CASCADE, counting)
    engine.warm_up()
    engine.cache.clear()
    counting.rows.clear()
    results = engine.score(asked)
    assert [len(row) for row in counting.rows] == [4, 4]  # the prefixes, then the paths
    for one, result in zip(asked, results, strict=True):
        assert_close(reference(engine, one), result.scores)
    assert sum(r.computed_tokens for r in results) == sum(map(sum, counting.rows))


def test_tokens_of_a_shared_prefix_are_counted_for_the_first_request(engine) -> None:
    prefix = ids(1, 60)
    engine.cache.clear()
    first, second = engine.score([request(prefix, seed=1), request(prefix, seed=2)])
    (alone,) = engine.score([request(prefix, seed=2)])
    assert first.computed_tokens == 59 + second.computed_tokens
    assert alone.computed_tokens == second.computed_tokens


@pytest.mark.parametrize("budget", [1, 7, 33, 1000])
def test_a_prefix_computed_in_pieces_is_the_same(engine, forward, budget) -> None:
    prefix = ids(3, 50)
    with torch.inference_mode():
        ((whole, spent),) = prefill(forward, [prefix], TokenBudget(1000), PrefixCache(0))
        ((pieces, _),) = prefill(forward, [prefix], TokenBudget(budget), PrefixCache(0))
    assert (whole.ids, pieces.ids, spent) == (prefix, prefix, 50)
    for one, other in zip(whole.layers, pieces.layers, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_prefixes_that_begin_alike_are_computed_once(forward) -> None:
    head = ids(4, 60)
    wanted = [head + ids(5, 10), head + ids(6, 3), ids(7, 8)]
    with torch.inference_mode():
        made = prefill(forward, wanted, TokenBudget(), PrefixCache(0))
    assert [state.ids for state, _ in made] == wanted
    assert [spent for _, spent in made] == [70, 3, 8]


def test_a_prefix_that_grew_costs_what_was_appended(engine) -> None:
    prefix = ids(8, 60)
    grown = prefix + ids(9, 12)
    engine.cache.clear()
    engine.score([request(prefix)])
    (result,) = engine.score([request(grown)])
    (again,) = engine.score([request(grown)])
    assert result.computed_tokens == again.computed_tokens + 12
    assert_close(reference(engine, request(grown)), result.scores)


def test_long_prefixes_do_not_pile_up_in_one_row(forward) -> None:
    counting = Counting(forward)
    batches = [Batch(ids(n, 100), (Path(ids(50 + n, 4), (3,)),)) for n in range(5)]
    with torch.inference_mode():
        score(counting, batches, TokenBudget(40), PrefixCache(0))
    assert max(len(row) for row in counting.rows) <= 2


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "phi3"])
@pytest.mark.parametrize("wanted", [(0,), (3, 4, 10), (11,), tuple(range(12))])
def test_the_last_layer_computes_the_wanted_rows_and_no_others(family, wanted, monkeypatch) -> None:
    monkeypatch.setattr(cascade, "BLOCK_ROWS", 5)
    original, row = model(family), ids(11, 12)
    forward = CascadeForward(Runner(original, family))
    passed = []
    for layer in next(m for m in forward._twin.modules() if isinstance(m, torch.nn.ModuleList)):
        product = next(m for m in reversed(list(layer.mlp.modules())) if hasattr(m, "weight"))
        passed.append([])
        product.register_forward_hook(
            lambda _module, args, _out, n=passed[-1]: n.append(args[0].shape[-2])
        )
    with torch.inference_mode():
        logits, _ = forward([(plant([row]), PrefixState())], wanted)
        whole = original(torch.tensor([row])).logits[0]
    np.testing.assert_allclose(logits, whole[list(wanted)], atol=TOLERANCE)
    assert [sum(rows) for rows in passed] == [12] * (len(passed) - 1) + [len(wanted)]
    assert passed[0] == [5, 5, 2]


def test_the_twin_shares_the_weights_and_leaves_the_model_alone() -> None:
    original = model("llama")
    kind = original.config._attn_implementation
    twin = twin_of(original)
    assert {p.data_ptr() for p in twin.parameters()} == {
        p.data_ptr() for p in original.parameters()
    }
    assert original.config._attn_implementation == kind
