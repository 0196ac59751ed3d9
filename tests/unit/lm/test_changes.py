"""A model that its owner changes between two calls is scored as it is now."""

import copy

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, encoded, engine_of, local, model, request, tokenizer
from torch import nn

from ecs_plugins.errors import ModelError
from ecs_plugins.lm.base import Segment
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.scoring.check import require_causal
from ecs_plugins.lm.scoring.model_watch import Change, ModelWatch
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.runner import Runner

pytestmark = pytest.mark.model

TOLERANCE = 1e-4
PROMPT = (Segment("Ann lives in"),)


class Adapted(nn.Module):
    """A projection with adapters, of which the one named last is used, as in PEFT."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.scaling = {"a": 1.0, "b": 1.0}
        self.active = ["a"]
        self.adapters = nn.ParameterDict()
        generator = torch.Generator().manual_seed(3)
        for name in self.scaling:
            weights = torch.randn(base.weight.shape, generator=generator)
            self.adapters[name] = 0.2 * weights

    def forward(self, states):
        (name,) = self.active
        added = states @ self.adapters[name].T
        return self.base(states) + self.scaling[name] * added


class Steering:
    """A hook whose strength may change without a trace."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def __call__(self, _module, _arguments, output):
        return output * self.strength


@pytest.fixture
def own():
    """A model that the test may change, with adapters on its first layer."""
    made = copy.deepcopy(model("llama"))
    attention = made.model.layers[0].self_attn
    attention.q_proj = Adapted(attention.q_proj)
    return made


def first_layer(made):
    return made.model.layers[0]


def switch_adapter(made) -> None:
    first_layer(made).self_attn.q_proj.active = ["b"]


def rescale_adapter(made) -> None:
    first_layer(made).self_attn.q_proj.scaling["a"] = 0.5


def set_attention_scale(made) -> None:
    first_layer(made).self_attn.scaling = 0.1


def register_hook(made) -> None:
    first_layer(made).mlp.register_forward_hook(Steering(1.5))


def replace_a_frequency(made) -> None:
    rotary = made.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq * 0.5


@torch.no_grad()
def overwrite_frequencies(made) -> None:
    made.model.rotary_emb.inv_freq.mul_(0.5)


@torch.no_grad()
def overwrite_an_embedding(made) -> None:
    token = encoded(request()).candidates[1][0]
    made.get_input_embeddings().weight[token] = 0.3


@torch.no_grad()
def overwrite_a_row_deep_inside(made) -> None:
    first_layer(made).self_attn.v_proj.weight[3] = 0.3


def write_through_data(made) -> None:
    first_layer(made).self_attn.v_proj.weight.data[3] = 0.3


def swap_feed_forward_blocks(made) -> None:
    first, second = made.model.layers
    first.mlp, second.mlp = second.mlp, first.mlp


CHANGES = [
    switch_adapter,
    rescale_adapter,
    set_attention_scale,
    register_hook,
    replace_a_frequency,
    overwrite_frequencies,
    overwrite_an_embedding,
    overwrite_a_row_deep_inside,
    swap_feed_forward_blocks,
]


def flat(result):
    in_order = sorted(result.scores.items())
    return np.concatenate([logprobs for _, logprobs in in_order])


def difference(one, other) -> float:
    """The largest one between two results, in nats per token."""
    return float(np.abs(flat(one) - flat(other)).max())


@pytest.mark.parametrize("change", CHANGES)
def test_scores_follow_changes_of_the_weights(own, change) -> None:
    under_test = engine_of(own)
    asked = encoded(request())
    (before,) = under_test.score([asked])
    change(own)
    wanted = under_test.by_reference(asked, under_test.profile.window)
    (after,) = under_test.score([asked])
    assert under_test.path_for(60)[0] is ScoringPath.CASCADE
    assert difference(after, before) > 100 * TOLERANCE
    assert difference(after, wanted) < TOLERANCE


def test_after_a_write_through_data_clear_cache_makes_scores_follow(own) -> None:
    lm = LocalLM(own, tokenizer("byte_level"))
    (before,) = lm.score([request()])
    write_through_data(own)
    lm.clear_cache()
    (after,) = lm.score([request()])
    (wanted,) = lm.score_by_reference([request()])
    for k, candidate in enumerate(wanted.scores):
        for m, segments in enumerate(candidate):
            for s, segment in enumerate(segments):
                found = after.scores[k][m][s].logprobs
                assert np.abs(found - segment.logprobs).max() < TOLERANCE
                assert np.abs(found - before.scores[k][m][s].logprobs).max() > TOLERANCE


@pytest.mark.parametrize("name", ["mlp", "self_attn", "input_layernorm"])
def test_scores_follow_a_class_whose_forward_is_replaced(own, monkeypatch, name) -> None:
    under_test = engine_of(own)
    asked = encoded(request())
    (before,) = under_test.score([asked])
    kind = type(getattr(first_layer(own), name))
    original = kind.forward

    def doubled(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        return (2 * out[0], *out[1:]) if isinstance(out, tuple) else 2 * out

    monkeypatch.setattr(kind, "forward", doubled)
    wanted = under_test.by_reference(asked, under_test.profile.window)
    (after,) = under_test.score([asked])
    assert difference(after, before) > 100 * TOLERANCE
    assert difference(after, wanted) < TOLERANCE


def test_a_hook_whose_strength_changes_is_followed_and_nothing_is_kept_beside_it(own) -> None:
    steering = Steering(1.0)
    handle = first_layer(own).mlp.register_forward_hook(steering)
    under_test = engine_of(own)
    asked = encoded(request())
    (before,) = under_test.score([asked])
    steering.strength = 1.5
    (after,) = under_test.score([asked])
    wanted = under_test.by_reference(asked, under_test.profile.window)
    assert difference(after, wanted) < TOLERANCE
    assert after.computed_tokens == before.computed_tokens
    handle.remove()
    under_test.score([asked])
    (kept,) = under_test.score([asked])
    assert kept.computed_tokens < before.computed_tokens


def test_a_hook_that_mixes_rows_takes_the_fast_path_away(own) -> None:
    under_test = engine_of(own)
    asked = encoded(request())
    under_test.score([asked])

    def mix_rows(_module, _inputs, states):
        return states.cumsum(1)

    first_layer(own).register_forward_hook(mix_rows)
    wanted = under_test.by_reference(asked, under_test.profile.window)
    with pytest.warns(RuntimeWarning, match="self-check"):
        (after,) = under_test.score([asked])
    assert difference(after, wanted) < TOLERANCE


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_that_takes_notes_while_it_runs_has_not_changed(name) -> None:
    lm = local(name)
    lm.score([request()])
    lm.score_by_reference([request()])
    watch = lm._load().engine._watch
    assert watch.look() is Change.NONE


def test_cached_keys_survive_a_generation() -> None:
    lm = local()
    lm.score([request()])
    lm.generate([PROMPT], max_new_tokens=4)
    (result,) = lm.score([request()])
    (first,) = local().score([request()])
    assert result.computed_tokens < first.computed_tokens


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization.*:DeprecationWarning")
def test_a_dynamic_int8_copy_is_refused_by_name_and_still_writes() -> None:
    plain = copy.deepcopy(model("llama"))
    quantised = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)
    lm = LocalLM(quantised, tokenizer("byte_level"))
    with pytest.raises(ModelError, match=r"dynamically quantised layers.*quantize_dynamic"):
        lm.score([request()])
    (generation,) = lm.generate([PROMPT], max_new_tokens=3)
    assert generation.completion_tokens == 3


class SoftPrompt(nn.Module):
    """Puts virtual tokens before a prompt, as prompt tuning does."""

    def __init__(self, base) -> None:
        super().__init__()
        self.base = base
        self.config = base.config
        self.device = base.device
        self.dtype = base.dtype

    def forward(self, input_ids):
        virtual = input_ids[:, :1].repeat(1, 4)
        longer = torch.cat((virtual, input_ids), dim=1)
        return self.base(input_ids=longer)


def test_virtual_tokens_are_refused_because_rows_of_logits_are_of_other_tokens() -> None:
    runner = Runner(SoftPrompt(model("llama")), "soft")
    with pytest.raises(ModelError, match="13 rows of logits for 9 tokens"):
        require_causal(runner)


def test_numbers_and_structure_are_told_apart(own) -> None:
    watch = ModelWatch(own)
    assert watch.look() is Change.NONE
    with torch.no_grad():
        own.lm_head.weight.mul_(2)
    assert watch.look() is Change.NUMBERS
    switch_adapter(own)
    assert watch.look() is Change.STRUCTURE
    assert watch.look() is Change.NONE
