"""Cascade attention in few calls, for a GPU, held to float64 on the CPU.

The kernel is replaced by plain arithmetic; that the real one takes such arguments is tried on fake
CUDA tensors, and its numbers in ``test_gpu``.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from attention import HEADS, KV_HEADS, dense, drawn, planned, prefix_of, row_of, softmax_varlen
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ecs_plugins.lm.scoring.cascade import CascadeForward, cascade_attention
from ecs_plugins.lm.scoring.forest import plant
from ecs_plugins.lm.scoring.kernels import (
    Spans,
    attend,
    by_key_head,
    flash_varlen,
    varlen_of,
)
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.profile import ScoringPath, profile_of
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest
from ecs_plugins.lm.scoring.runner import Runner

CPU = torch.device("cpu")


def attention(groups, varlen=softmax_varlen):
    """What a row of groups gets, and what it should get."""
    plan, rows = planned(groups)
    plan.use(varlen, CPU)
    query, key, value = row_of(rows)
    got, _ = cascade_attention(torch.nn.Module(), query, key, value, None, cascade_plan=plan)
    return got[0].double(), dense(groups, query, key, value)


FOREST = st.lists(
    st.lists(st.integers(0, 1), min_size=1, max_size=60).map(tuple), min_size=1, max_size=6
).map(plant)
GROUPS = st.lists(st.tuples(FOREST, st.sampled_from([0, 1, 7, 40])), min_size=1, max_size=3)


def with_prefixes(parts):
    return [(forest, prefix_of(10 * n, past)) for n, (forest, past) in enumerate(parts)]


@settings(max_examples=60, deadline=None)
@given(GROUPS)
def test_a_row_sees_its_prefix_its_ancestors_and_itself(parts) -> None:
    got, wanted = attention(with_prefixes(parts))
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_nodes_three_deep_in_two_groups_are_seen_by_their_descendants() -> None:
    head, middle = tuple(range(20)), tuple(range(100, 140))
    tree = [(*head, *middle, 1, 2), (*head, *middle, 3), (*head, 4, 5, 6)]
    groups = [(plant(tree), prefix_of(0, 9)), (plant(tree), prefix_of(5, 0))]
    plan, _ = planned(groups)
    assert max(len(path) for forest, _ in groups for path in forest.paths) == 3
    plan.use(softmax_varlen, CPU)
    assert [len(block.spans.queries) - 1 for block in plan.ragged.blocks] == [2, 2, 1]
    got, wanted = attention(groups)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *args, **options):
        self.calls += 1
        return softmax_varlen(*args, **options)


@pytest.mark.parametrize("passages", [2, 40])
def test_the_number_of_calls_does_not_grow_with_the_passages(passages) -> None:
    head = tuple(range(30))
    varlen = Counting()
    forest = plant([(*head, 1000 + n, *range(n % 7)) for n in range(passages)])
    attention([(forest, prefix_of(0, 5)), (forest, prefix_of(3, 8))], varlen)
    assert varlen.calls == 3


def test_one_prefix_and_one_head_are_not_copied() -> None:
    head = tuple(range(30))
    plan, rows = planned([(plant([(*head, 50), (*head, 60, 61)]), prefix_of(0, 4))])
    plan.use(softmax_varlen, CPU)
    ancestors, prefix = plan.ragged.blocks
    assert (ancestors.rows, ancestors.keys) == (slice(30, rows), slice(0, 30))
    assert prefix.rows == slice(0, rows)
    seen = []

    def watching(query, key, value, spans, **options):
        seen.append(key.data_ptr())
        return softmax_varlen(query, key, value, spans, **options)

    plan.use(watching, CPU)
    query, key, value = row_of(rows)
    cascade_attention(torch.nn.Module(), query, key, value, None, cascade_plan=plan)
    kept = plan.prefixes[0][2].layers[0][0]
    assert seen == [key.data_ptr(), key.data_ptr(), kept.data_ptr()]


WAITING = {"_local_scalar_dense", "lift_fresh", "nonzero", "_to_copy", "is_pinned"}
"""Operations by which numbers travel between host and device."""


class Noting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def shaped(query, key, value, spans, *, causal, scale):
    """A kernel that computes nothing."""
    return torch.zeros_like(query), query.new_zeros(query.shape[1], query.shape[0])


def test_a_layer_moves_no_numbers_between_host_and_device() -> None:
    head = tuple(range(30))
    forest = plant([(*head, 1), (*head, 2, 3)])
    groups = [(forest, prefix_of(0, 5, layers=2)), (forest, PrefixState())]
    plan, rows = planned(groups)
    plan.use(shaped, CPU)
    states = row_of(rows)
    with Noting() as noted:
        for _ in range(2):
            cascade_attention(torch.nn.Module(), *states, None, cascade_plan=plan)
    assert "index_copy_" in noted.names
    assert not WAITING & noted.names


# --- Kernels --------------------------------------------------------------------------------


def test_heads_that_share_keys_do_so_without_a_copy() -> None:
    query = row_of(9)[0]
    past = drawn(5, KV_HEADS, 30)[:, :, 3:25]
    q, k, v = by_key_head(query, past, past)
    assert q.data_ptr() == query.data_ptr()
    assert k.data_ptr() == v.data_ptr() == past.data_ptr()
    assert k.shape == (KV_HEADS, HEADS // KV_HEADS, 22, 8)
    out, lse = attend(q, k.contiguous(), v.contiguous(), causal=False, scale=0.3)
    wanted, wanted_lse = attend(query, past, past, causal=False, scale=0.3)
    torch.testing.assert_close(out.reshape(wanted.shape), wanted)
    torch.testing.assert_close(lse.reshape(wanted_lse.shape), wanted_lse)


@pytest.mark.parametrize(
    ("dtype", "capability", "used"),
    [
        (torch.bfloat16, (9, 0), True),
        (torch.float16, (8, 0), True),
        (torch.float32, (9, 0), False),
        (torch.float16, (7, 5), False),
    ],
)
def test_a_card_uses_the_kernel_over_ranges_where_it_can(
    monkeypatch, dtype, capability, used
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    on_card = SimpleNamespace(device=torch.device("cuda:0"), dtype=dtype)
    assert (varlen_of(on_card) is flash_varlen) is used
    assert varlen_of(model("llama")) is None


def test_the_kernel_takes_what_it_is_given_on_any_card() -> None:
    with FakeTensorMode():
        card = torch.device("cuda:1")
        query, key = (
            torch.empty(h, 12, 64, dtype=torch.bfloat16, device=card).transpose(0, 1)
            for h in (HEADS, KV_HEADS)
        )
        cuts = torch.empty(3, dtype=torch.int32, device=card)
        spans = Spans(cuts, cuts, 7, 7)
        out, lse = flash_varlen(query, key, key, spans, causal=True, scale=0.1)
        assert (out.shape, out.device, out.dtype) == (query.shape, card, torch.bfloat16)
        assert (lse.shape, lse.dtype) == ((HEADS, 12), torch.float32)


META = torch.device("meta")


def test_one_block_on_a_card_has_the_shapes_of_one_on_a_cpu() -> None:
    query, key = (torch.empty(2, heads, 5, 64, device=META) for heads in (HEADS, KV_HEADS))
    out, lse = attend(query, key, key, causal=True, scale=0.1)
    assert (out.shape, lse.shape) == (query.shape, (2, HEADS, 5))


def test_a_whole_forward_needs_no_number_from_its_device() -> None:
    with META:
        copied = type(model("llama"))(model("llama").config).bfloat16()
    with torch.inference_mode():
        forward = CascadeForward(Runner(copied, "llama"), flash_varlen)
        head = tuple(range(30))
        prefix, rows = plant([head]), plant([(*head, 1), (*head, 2, 3)])
        _, layers = forward([(prefix, PrefixState())], [], capture=True)
        state = PrefixState().append(head, layers)
        logits, _ = forward([(rows, state), (rows, PrefixState())], [30, 40])
    assert (logits.shape, logits.device.type, logits.dtype) == ((2, 384), "meta", torch.bfloat16)


# --- End to end -----------------------------------------------------------------------------


def ids(seed, number):
    return tuple(int(i) for i in np.random.default_rng(seed).integers(4, 380, size=number))


def request(prefix, seed=0):
    candidates = tuple(ids(seed + 100 + n, 5 + 3 * n) for n in range(3))
    behind = tuple(Continuation(ids(seed + 50 + n, 6 + n), ((2, 6),)) for n in range(2))
    return TokenRequest(prefix, ((), *candidates, candidates[0]), behind)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_the_engine_scores_as_the_reference_does(family) -> None:
    runner = Runner(model(family), family)
    engine = ScoringEngine(runner, profile_of(model(family), runner.takes, 10**30))
    varlen = Counting()
    engine._forwards[ScoringPath.CASCADE] = CascadeForward(runner, varlen)
    asked = [request(ids(n, length), n) for n, length in enumerate((60, 3, 45))]
    results = engine.score(asked)
    assert engine.path_for(80) == (ScoringPath.CASCADE, {})
    assert varlen.calls
    for one, result in zip(asked, results, strict=True):
        wanted, _ = engine.run(ScoringPath.REFERENCE, one, range(len(one.candidates)))
        for key, logprobs in wanted.items():
            np.testing.assert_allclose(result.scores[key], logprobs, atol=1e-4)
