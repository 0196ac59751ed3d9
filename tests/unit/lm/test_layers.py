"""Decoder layers with fewer passes over memory against those of transformers."""

import copy

import pytest
import torch
from families import built

from ecs_plugins.lm.scoring.cascade import cascade_attention, twin_of
from ecs_plugins.lm.scoring.layers import DecoderLayer
from ecs_plugins.lm.scoring.plan import AttentionPlan

COMMON = ("llama", "qwen2", "qwen3", "llama_tied_bias", "gemma")
OTHER = ("cohere", "gpt_neox", "olmo2", "granite", "phi", "starcoder2", "glm4")


def replaced(model):
    return [m for m in model.modules() if isinstance(m.__dict__.get("forward"), DecoderLayer)]


def call(forward, states, kept, layers, position_embeddings):
    rows = states.shape[1]
    plan = AttentionPlan(own=[(0, rows, 1)], longest=rows, kept=kept, layers=layers)
    with torch.inference_mode():
        return forward(
            states.clone(),
            attention_mask=None,
            position_ids=torch.arange(rows)[None],
            position_embeddings=position_embeddings,
            past_key_values=None,
            use_cache=False,
            cascade_plan=plan,
        )


def prepared(name, rows=70):
    twin = twin_of(built(name))
    states = torch.randn(1, rows, 32, generator=torch.Generator().manual_seed(1))
    rotary = next(m for n, m in twin.named_modules() if n.endswith("rotary_emb"))
    return replaced(twin), states, rotary(states, torch.arange(rows)[None])


@pytest.mark.parametrize("name", COMMON)
def test_layers_of_the_common_form_are_replaced_and_give_the_same(name) -> None:
    layers, states, positions = prepared(name)
    assert layers
    for layer in layers:
        wanted = call(layer.forward.original, states, (), 2, positions)
        torch.testing.assert_close(call(layer, states, (), 2, positions), wanted)


def test_the_last_layer_gives_the_rows_that_are_kept() -> None:
    layers, states, positions = prepared("llama")
    kept = [0, 3, 69]
    wanted = call(layers[0].forward.original, states, range(70), 1, positions)
    found = call(layers[0], states, kept, 1, positions)
    torch.testing.assert_close(found[:, kept], wanted[:, kept])


@pytest.mark.parametrize("name", OTHER)
def test_layers_of_another_form_stay_as_they_are(name) -> None:
    assert not replaced(twin_of(built(name)))


def test_a_layer_with_a_window_of_its_own_keeps_its_refusal() -> None:
    assert not replaced(twin_of(built("mistral_long_window")))


def test_a_model_in_float16_keeps_its_layers() -> None:
    assert not replaced(twin_of(built("llama").half()))


def test_without_a_plan_a_layer_runs_as_it_was() -> None:
    model = built("llama")
    twin = twin_of(model)
    layer = replaced(twin)[0].forward
    calls = []
    layer.original = lambda *args, **kwargs: calls.append(kwargs)
    layer(torch.zeros(1, 2, 32), position_embeddings=None, use_cache=False)
    assert calls[0]["use_cache"] is False


def test_no_wish_for_rows_captures_keys_without_the_last_attention(monkeypatch) -> None:
    rows = 6
    plan = AttentionPlan(own=[(0, rows, 1)], longest=rows, layers=1, captured=[])
    draw = torch.Generator().manual_seed(2)
    query, key = (torch.randn(1, heads, rows, 8, generator=draw) for heads in (4, 2))
    called = []
    monkeypatch.setattr("ecs_plugins.lm.scoring.cascade.attend", lambda *a, **k: called.append(a))
    cascade_attention(torch.nn.Module(), query, key, key, None, cascade_plan=plan)
    assert not called
    torch.testing.assert_close(plan.captured, [(key, key)])


@pytest.mark.parametrize("name", COMMON)
def test_layers_in_bfloat16_are_replaced_and_lose_no_more_than_others_do(name) -> None:
    exact, states, positions = prepared(name)
    model = copy.deepcopy(built(name)).bfloat16()
    half = states.bfloat16(), tuple(part.bfloat16() for part in positions)
    rounded = replaced(twin_of(model))
    assert len(rounded) == len(exact)
    wide = replaced(twin_of(copy.deepcopy(model).float()))
    for layer, reference in zip(rounded, wide, strict=True):
        wanted = call(reference, half[0].float(), (), 2, positions)
        theirs = call(layer.forward.original, half[0], (), 2, half[1]) - wanted
        ours = call(layer, half[0], (), 2, half[1]) - wanted
        assert ours.square().mean() <= 1.3 * theirs.square().mean()


def test_a_layer_whose_parts_compute_something_else_stays_as_it_is_in_bfloat16_too() -> None:
    model = copy.deepcopy(built("llama")).bfloat16()
    norm = model.model.layers[0].input_layernorm
    norm.variance_epsilon = 1.0
    norm.forward = lambda states: torch.nn.functional.layer_norm(states, states.shape[-1:])
    mlp = model.model.layers[1].mlp
    mlp.forward = lambda states: mlp.down_proj(mlp.up_proj(states))
    before = norm.forward
    twin = twin_of(model)
    assert twin.model.layers[0].input_layernorm.forward is before
    assert len(replaced(twin)) == len(model.model.layers) - 1
