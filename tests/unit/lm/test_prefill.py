"""Prompts read one by one and decoded together give the text of a padded batch."""

import pytest
import torch
from tiny_models import model, tokenizer

from ecs_plugins.lm import generation
from ecs_plugins.lm.base import Segment
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.prefill import read_prompts

SHARED = "Ann moved to Paris in the spring and kept a small garden there. "
TEXTS = (
    SHARED + "Where does Ann live?",
    "The train from Rome to Milan was late again because of snow.",
    SHARED + "Who keeps a garden?",
    "snow and bread",
    SHARED + "Where does Ann live?",
)
PROMPTS = tuple((Segment(text),) for text in TEXTS)


def written(family, monkeypatch, shortest):
    monkeypatch.setattr(generation, "_WORTH_READING", shortest)
    lm = LocalLM(model(family), tokenizer("byte_level"))
    return lm.generate(PROMPTS, max_new_tokens=12)


@pytest.mark.parametrize(
    "family",
    ["llama", "qwen2", "qwen3", "gpt2", "opt", "phi3", "gemma2", "gemma2_window", "mistral_window"],
)
def test_reading_apart_changes_no_text(family, monkeypatch) -> None:
    apart = written(family, monkeypatch, 1)
    assert apart == written(family, monkeypatch, 10**6)
    assert len({g.text for g in apart}) > 1


def states(family, prompts, new=3):
    with torch.inference_mode():
        return read_prompts(model(family), prompts, new)


def ids(text):
    return tuple(tokenizer("byte_level").encode(text, add_special_tokens=False))


def test_what_prompts_share_is_read_once(monkeypatch) -> None:
    read = []
    base = model("llama").base_model
    forward = base.forward

    def counted(*args, **kwargs):
        read.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    monkeypatch.setattr(base, "forward", counted)
    first, second = ids(TEXTS[0]), ids(TEXTS[2])
    shared = next(n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    states("llama", [first, second, first])
    assert sum(read) == len(first) + len(second) - 2 - shared
    assert shared > 20


def test_states_are_those_of_each_prompt_alone_flush_right() -> None:
    prompts = [ids(TEXTS[0]), ids(TEXTS[3])]
    cache = states("llama", prompts)
    for row, prompt in enumerate(prompts):
        with torch.inference_mode():
            alone = model("llama").base_model(torch.tensor([prompt[:-1]]), use_cache=True)
        for layer, own in zip(cache.layers, alone.past_key_values.layers, strict=True):
            length = len(prompt) - 1
            torch.testing.assert_close(layer.keys[row, :, -length:], own.keys[0])
            torch.testing.assert_close(layer.values[row, :, -length:], own.values[0])
            assert not layer.keys[row, :, :-length].any()


def test_a_model_that_keeps_no_keys_is_left_to_transformers(monkeypatch) -> None:
    base = model("llama").base_model
    forward = base.forward

    def forgetful(input_ids, **kwargs):
        return forward(input_ids=input_ids)

    monkeypatch.setattr(base, "forward", forgetful)
    assert states("llama", [ids(TEXTS[0]), ids(TEXTS[1])]) is None


def test_a_batch_holds_no_more_tokens_than_allowed(monkeypatch) -> None:
    lm = LocalLM(model("llama"), tokenizer("byte_level"))
    sizes = []
    whole = lm._load().generator._batch

    def counted(prompts, *args):
        sizes.append(len(prompts))
        return whole(prompts, *args)

    monkeypatch.setattr(lm._load().generator, "_batch", counted)
    width = len(ids(TEXTS[3])) + 2
    monkeypatch.setattr(generation, "BATCH_TOKENS", 20 * width)
    lm.generate([PROMPTS[3]] * 30, max_new_tokens=2)
    assert sizes == [20, 10]
