"""Kernels of a call, counted without a card on shapes alone.

A device that is no processor takes the path of a card, and "meta" computes nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as tf
from tiny_models import ids
from torch.utils._python_dispatch import TorchDispatchMode

from ecs_plugins.lm.scoring import padded, tensors
from ecs_plugins.lm.scoring.modules import fuse_norms
from ecs_plugins.lm.scoring.packed import Batch, score
from ecs_plugins.lm.scoring.packs import TokenBudget
from ecs_plugins.lm.scoring.prefix import PrefixTree
from ecs_plugins.lm.scoring.request import Comparison, Path
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.varlen import VarlenForward

pytestmark = pytest.mark.model

META = torch.device("meta")
LAYERS = 30
PASSAGE = 60
BEHIND = 20
SCORED = 8


class Counted(TorchDispatchMode):
    """Counter of dispatched operations.

    Attributes:
        started: Operations that start something on the device.
        views: Those that only look at tensors differently.
        sent: Copies from the processor to the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.started = 0
        self.views = 0
        self.sent = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if crosses(args, out):
            self.sent += 1
        elif func.is_view:
            self.views += 1
        else:
            self.started += 1
        return out


def crosses(args, out) -> bool:
    """Return True if an operation copies a tensor to the device."""
    source = args[0] if args else None
    if not isinstance(source, torch.Tensor) or not isinstance(out, torch.Tensor):
        return False
    return source.device.type == "cpu" and out.device.type != "cpu"


@pytest.fixture
def reads(monkeypatch):
    """Numbers that were read from the device, per read."""
    sizes = []

    def read(numbers):
        sizes.append(numbers.numel())
        return np.zeros(tuple(numbers.shape), dtype=np.float32)

    for module in (tensors, padded):
        monkeypatch.setattr(module, "from_device", read)
    return sizes


@pytest.fixture(scope="module")
def forward():
    config = tf.LlamaConfig(
        vocab_size=384,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    with META:
        made = tf.LlamaForCausalLM(config).bfloat16().eval()
    with torch.inference_mode():
        under_test = VarlenForward(Runner(made, "meta"))
        assert len(under_test.shape.layers) == LAYERS
    return under_test


def batch_of(passages, context, seed=0, divergence=False):
    """Return a request with the empty and further passages, a context and one question."""
    question = ids(1000 + seed, BEHIND)
    comparison = Comparison(question) if divergence else None
    paths = []
    for number in range(passages + 1):
        passage = ids(number, PASSAGE) if number else ()
        first = len(passage) + BEHIND - SCORED
        scored = tuple(range(first, first + SCORED))
        paths.append(Path(passage + question, scored, len(passage), comparison))
    return Batch(ids(5000 + context, context), paths)


def counted(forward, tree, batch, budget=10**6):
    tree.begin()
    with torch.inference_mode(), Counted() as found:
        score(forward, [batch], TokenBudget(budget), tree)
    return found


@pytest.mark.parametrize(("context", "most"), [(20, 31), (600, 37)])
def test_operations_do_not_grow_with_passages(forward, reads, context, most) -> None:
    counts = {}
    for passages in (60, 200):
        tree = PrefixTree(2**26)
        one = batch_of(passages, context, seed=1)
        other = batch_of(passages, context, seed=2)
        first = counted(forward, tree, one)
        later = counted(forward, tree, other)
        assert tree.statistics.tokens >= passages * PASSAGE
        counts[passages] = (first, later)
    for few, many in zip(counts[60], counts[200], strict=True):
        assert many.started <= 1.02 * few.started
        assert many.started + many.views <= 1.02 * (few.started + few.views)
    # A first question behind a long context reads that in a forward of its own.
    forwards = (2 if context > 100 else 1, 1)
    for number, found in zip(forwards, counts[200], strict=True):
        assert found.started <= most * LAYERS * number
        assert found.sent == number


@pytest.mark.parametrize("divergence", [False, True])
@pytest.mark.parametrize("passages", [10, 40])
def test_a_call_reads_from_its_device_once(forward, reads, divergence, passages) -> None:
    batch = batch_of(passages, 50, divergence=divergence)
    counted(forward, PrefixTree(2**26), batch, budget=500)
    told = passages * SCORED * (2 if divergence else 1) + SCORED
    assert reads == [told]


def test_one_copy_goes_to_the_device_per_pack(forward, reads) -> None:
    packs = []
    run = forward.runner.logits

    def noting(*arguments, **options):
        packs.append(1)
        return run(*arguments, **options)

    forward.runner.logits = noting
    try:
        tree = PrefixTree(2**26)
        found = counted(forward, tree, batch_of(40, 50), budget=500)
    finally:
        forward.runner.logits = run
    assert len(packs) > 3
    assert found.sent == len(packs)


def test_a_norm_is_one_operation(forward) -> None:
    states = torch.empty(1, 3, 64, dtype=torch.bfloat16, device=META)
    with torch.inference_mode(), Counted() as found:
        forward._twin.model.norm(states)
    assert (found.started, found.views) == (1, 0)


def test_a_norm_of_another_kind_is_left_alone() -> None:
    class ShiftedRMSNorm(tf.models.llama.modeling_llama.LlamaRMSNorm):
        def forward(self, states):
            return super().forward(states) + states

    plain_norm = tf.models.llama.modeling_llama.LlamaRMSNorm(16)
    other = ShiftedRMSNorm(16)
    fuse_norms(torch.nn.ModuleList([plain_norm, other]))
    assert "forward" in vars(plain_norm)
    assert "forward" not in vars(other)
