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
from ecs_plugins.lm.scoring.twin import TwinForward, Writes
from ecs_plugins.lm.scoring.varlen import VarlenPlan

NO_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA card")
pytestmark = [pytest.mark.model, pytest.mark.gpu, NO_CARD]
CARD = torch.device("cuda:0")
WIDE = 64
HALF = (torch.float16, torch.bfloat16)


def forests():
    head, middle = tuple(range(20)), tuple(range(100, 140))
    draw = np.random.default_rng(0)
    many = [(*head, *(int(i) for i in draw.integers(0, 9, n))) for n in range(1, 60, 3)]
    deep = [(*head, *middle, 1, 2), (*head, *middle, 3), (*head, 4, 5, 6)]
    return [(plant(many), prefix_of(0, 333, WIDE)), (plant(deep), prefix_of(5, 7, WIDE))], [
        (plant(deep), PrefixState()),
        (plant([(1,)]), prefix_of(9, 40, WIDE)),
        (plant(many), PrefixState()),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
@pytest.mark.parametrize("groups", forests())
@pytest.mark.parametrize("repeated", [0, 10_000])
def test_a_row_sees_its_prefix_its_ancestors_and_itself(
    dtype, groups, repeated, monkeypatch
) -> None:
    monkeypatch.setattr(varlen, "REPEATED", repeated)
    got, wanted = attention(groups, CARD, dtype, WIDE, VarlenPlan)
    np.testing.assert_allclose(got, wanted, atol=3e-2 if dtype in HALF else 1e-5)


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
    return transformers.LlamaForCausalLM(config).train(False).to(card, dtype)


def asked(seed, prefix):
    return token_request(ids(seed, prefix), passages=8, answers=2, seed=seed)


def differences(engine, requests):
    out = []
    for request, result in zip(requests, engine.score(requests), strict=True):
        wanted, _ = engine.run(ScoringPath.REFERENCE, request, range(len(request.candidates)))
        out.extend(np.abs(result.scores[key] - logprobs) for key, logprobs in wanted.items())
    return np.concatenate(out)


REQUESTS = [asked(n, length) for n, length in enumerate((300, 3, 45))]


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 2e-4), (torch.bfloat16, None)])
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
        forward = TwinForward(Runner(on_card(dtype), "tiny"), VarlenPlan)
        head = tuple(range(40))
        arena = Arena(forward.shape, pages=3)
        slots = arena.take(40)
        writes = Writes(arena, range(40), range(40))
        forward([(plant([head]), PrefixState())], [], writes=writes)
        state = PrefixState().append(head, arena, slots)
        groups = [(plant([(*head, 1), (*head, 2, 3)]), state)]
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
    handle = LocalLM(on_card(torch.float32, card), tokenizer("byte_level"), name="second")
    text = text_request()
    (found,), (wanted,) = handle.score([text]), handle.score_by_reference([text])
    assert found.scores[1][0][0].sum == pytest.approx(wanted.scores[1][0][0].sum, abs=1e-3)


@pytest.mark.parametrize("family", ["qwen3", SOFT_CAPPED, "gpt2"])
def test_other_families_are_right_too(family) -> None:
    copied = copy.deepcopy(model(family)).to(CARD)
    assert differences(engine_of(copied, family), [asked(1, 60)]).max() < 1e-3
