"""The scoring engine on a CUDA card: run ``pytest -m gpu`` on a machine that has one.

Every kernel against softmax in float64, and the engine against its reference path.
"""

import copy

import numpy as np
import pytest
import torch
from attention import attention, prefix_of
from tiny_models import SOFT_CAPPED, engine_of, ids, model, token_request, tokenizer
from tiny_models import request as text_request

from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.scoring import varlen
from ecs_plugins.lm.scoring.arena import Arena
from ecs_plugins.lm.scoring.forest import plant
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.twin import Writes
from ecs_plugins.lm.scoring.varlen import VarlenForward, VarlenPlan

NO_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA card")
pytestmark = [pytest.mark.model, pytest.mark.gpu, NO_CARD]
CARD = torch.device("cuda:0")
WIDE = 64
HALF = (torch.float16, torch.bfloat16)


def forests():
    """Two rows: behind prefixes all, and with some that stand behind nothing."""
    head = tuple(range(20))
    middle = (*head, *range(100, 140))
    draw = np.random.default_rng(0)
    leaves = []
    for length in range(1, 60, 3):
        tail = draw.integers(0, 9, length)
        leaves.append((*head, *tail.tolist()))
    many = plant(leaves)
    deep = plant(
        [
            (*middle, 1, 2),
            (*middle, 3),
            (*head, 4, 5, 6),
        ]
    )
    behind_all = [
        (many, prefix_of(0, 333, WIDE)),
        (deep, prefix_of(5, 7, WIDE)),
    ]
    behind_some = [
        (deep, PrefixState()),
        (plant([(1,)]), prefix_of(9, 40, WIDE)),
        (many, PrefixState()),
    ]
    return behind_all, behind_some


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
@pytest.mark.parametrize("groups", forests())
@pytest.mark.parametrize("repeated", [0, 10_000])
def test_a_row_sees_its_prefix_its_ancestors_and_itself(
    dtype, groups, repeated, monkeypatch
) -> None:
    monkeypatch.setattr(varlen, "REPEATED", repeated)
    got, wanted = attention(groups, CARD, dtype, WIDE, VarlenPlan)
    tolerance = 3e-2 if dtype in HALF else 1e-5
    np.testing.assert_allclose(got, wanted, atol=tolerance)


def on_card(dtype, card=CARD):
    """A tiny model whose heads are as wide as kernels want them."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=384,
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.08,
        max_position_embeddings=1024,
    )
    made = transformers.LlamaForCausalLM(config)
    return made.train(False).to(card, dtype)


def asked(seed, prefix):
    context = ids(seed, prefix)
    return token_request(context, passages=8, answers=2, seed=seed)


def differences(engine, requests):
    out = []
    results = engine.score(requests)
    for request, result in zip(requests, results, strict=True):
        everything = range(len(request.candidates))
        wanted, _ = engine.run(ScoringPath.REFERENCE, request, everything)
        for key, logprobs in wanted.items():
            out.append(np.abs(result.scores[key] - logprobs))
    return np.concatenate(out)


REQUESTS = [
    asked(0, 300),
    asked(1, 3),
    asked(2, 45),
]


@pytest.mark.parametrize(
    ("dtype", "most"),
    [
        (torch.float32, 2e-4),
        (torch.bfloat16, None),
    ],
)
def test_the_engine_is_as_near_its_reference_as_rounding_allows(dtype, most) -> None:
    engine = engine_of(on_card(dtype))
    found = differences(engine, REQUESTS)
    assert found.max() < most if most else found.mean() < 0.05
    assert engine.path_for(400) == (ScoringPath.VARLEN, {})


def test_float32_is_not_tensorfloat32_and_the_setting_stays() -> None:
    engine = engine_of(on_card(torch.float32))
    wanted = engine.score(REQUESTS)
    engine.forget()
    torch.set_float32_matmul_precision("high")
    try:
        found = engine.score(REQUESTS)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    for one, other in zip(wanted, found, strict=True):
        for key, logprobs in one.scores.items():
            np.testing.assert_allclose(other.scores[key], logprobs, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_forward_waits_for_nothing(dtype) -> None:
    with torch.inference_mode():
        forward = VarlenForward(Runner(on_card(dtype), "tiny"))
        head = tuple(range(40))
        arena = Arena(forward.shape, pages=3)
        slots = arena.take(40)
        writes = Writes(arena, range(40), range(40))
        alone = (plant([head]), PrefixState())
        forward([alone], [], writes=writes)
        state = PrefixState().append(head, arena, slots)
        leaves = plant([(*head, 1), (*head, 2, 3)])
        groups = [(leaves, state)]
        forward(groups, [40, 42])
        torch.cuda.synchronize(CARD)
        torch.cuda.set_sync_debug_mode("error")
        try:
            forward(groups, [40, 42])
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA card")
def test_a_model_on_the_second_card_scores_there() -> None:
    card = torch.device("cuda:1")
    model_ = on_card(torch.float32, card)
    handle = LocalLM(model_, tokenizer("byte_level"), name="second")
    text = text_request()
    (found,) = handle.score([text])
    (wanted,) = handle.score_by_reference([text])
    score = found.scores[1][0][0].sum
    reference = wanted.scores[1][0][0].sum
    assert score == pytest.approx(reference, abs=1e-3)


@pytest.mark.parametrize("family", ["qwen3", SOFT_CAPPED, "gpt2"])
def test_other_families_are_right_too(family) -> None:
    copied = copy.deepcopy(model(family)).to(CARD)
    under_test = engine_of(copied, family)
    errors = differences(under_test, [asked(1, 60)])
    assert errors.max() < 1e-3
