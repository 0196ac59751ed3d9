"""On which device and in which dtype a model computes."""

import copy
import functools
import logging
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import ASKED, SHARING, engine_of, logits_of, model, tokenizer
from transformers.utils import logging as transformers_logging

from ecs_plugins.errors import ConfigurationError, ModelNotFoundError
from ecs_plugins.lm import devices, loading
from ecs_plugins.lm.devices import (
    bfloat16_gain,
    describe,
    resolve_device,
    resolve_dtype,
    seconds_of_a_product,
)
from ecs_plugins.lm.scoring.profile import ScoringPath

pytestmark = pytest.mark.model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def gain(monkeypatch):
    """Sets the gain of bfloat16 on this processor; nothing was logged yet."""
    devices._best_of_cpu.cache_clear()

    def put_in(number):
        monkeypatch.setattr(devices, "bfloat16_gain", lambda: number)

    return put_in


@pytest.fixture
def card(monkeypatch):
    """Puts a card of some generation in."""

    def put_in(major):
        def supports_bfloat16(including_emulation=True):
            return including_emulation or major >= 8

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supports_bfloat16)
        monkeypatch.setattr(torch.cuda, "device", nullcontext)

    return put_in


# Devices.


@pytest.mark.parametrize(("major", "dtype"), [(7, torch.float16), (8, torch.bfloat16)])
def test_a_card_uses_a_supported_dtype(card, major, dtype) -> None:
    card(major)
    assert resolve_device("auto").type == "cuda"
    assert resolve_dtype("auto", resolve_device("cuda:0")) is dtype
    with pytest.raises(ConfigurationError, match=r"'cuda:3'.*there are 1"):
        resolve_device("cuda:3")


@pytest.mark.parametrize("device", ["xpu", "xpu:1", "hpu", "mtia", "meta", "vulkan", "no-such"])
def test_a_device_that_is_not_here_is_refused_by_name(device) -> None:
    with pytest.raises(ConfigurationError, match=f"'{device}'"):
        resolve_device(device)


def test_another_accelerator_that_is_here_computes_in_bfloat16(monkeypatch) -> None:
    there = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)
    monkeypatch.setattr(torch, "xpu", there)
    device = resolve_device("xpu:1")
    assert resolve_dtype("auto", device) is torch.bfloat16
    with pytest.raises(ConfigurationError, match=r"'xpu:2'.*there are 2"):
        resolve_device("xpu:2")


# The dtype of a CPU.


@pytest.mark.parametrize(
    ("faster", "dtype"),
    [
        (8.0, torch.bfloat16),
        (1.6, torch.bfloat16),
        (1.4, torch.float32),
        (0.01, torch.float32),
    ],
)
def test_auto_takes_bfloat16_where_a_product_is_much_faster_in_it(gain, faster, dtype) -> None:
    gain(faster)
    assert resolve_dtype("auto", CPU) is dtype


def test_a_choice_of_bfloat16_is_logged_once(gain, caplog) -> None:
    caplog.set_level(logging.INFO, logger=devices.__name__)
    for faster in (2.5, 1.0, 2.5, 1.0):
        gain(faster)
        resolve_dtype("auto", CPU)
    (record,) = caplog.records
    assert "2.5 times as fast" in record.message
    assert "dtype='float32'" in record.message


def test_this_processor_is_measured_once_and_described(monkeypatch) -> None:
    measured = []

    def measure(dtype: str) -> float:
        measured.append(dtype)
        return 3.0 if dtype == "float32" else 1.0

    assert seconds_of_a_product("float32") > 0
    monkeypatch.setattr(devices, "seconds_of_a_product", measure)
    bfloat16_gain.cache_clear()
    assert bfloat16_gain() == bfloat16_gain() == 3.0
    bfloat16_gain.cache_clear()
    assert sorted(measured) == ["bfloat16", "float32"]


def test_the_dtype_and_device_are_described(gain) -> None:
    gain(3.0)
    assert describe(CPU, torch.bfloat16) == (
        "bfloat16 on the CPU, which multiplies 3 times as fast in bfloat16 as in float32"
    )
    assert describe(torch.device("cuda:1"), torch.float16) == "float16 on cuda:1"


@pytest.mark.parametrize("name", SHARING)
def test_in_bfloat16_scores_are_those_of_a_plain_loop_in_bfloat16(name) -> None:
    """Rounding makes single tokens noisy in both; neither is nearer to the float32 loop."""
    rounded = copied_in_bfloat16(name)
    (result,) = engine_of(rounded).score([ASKED])
    plain = loop(rounded)
    exact = loop(model(name))
    scores = np.concatenate([result.scores[key] for key in exact])
    plain_error = np.abs(flat(plain) - flat(exact)).mean()
    assert np.abs(scores - flat(plain)).mean() < 0.1
    assert np.abs(scores - flat(exact)).mean() < 2 * plain_error
    assert plain_error > 0


def copied_in_bfloat16(name):
    source = model(name)
    rounded = type(source)(source.config).to(torch.bfloat16).eval()
    rounded.load_state_dict(source.state_dict())
    return rounded


def loop(made):
    """Log-probabilities of the scored tokens by one forward per prompt."""
    scores = {}
    for key, tokens, logits in logits_of(made, ASKED):
        rows = torch.log_softmax(logits.float(), dim=-1)
        chosen = rows.gather(1, torch.tensor(tokens)[:, None])
        scores[key] = chosen[:, 0].numpy()
    return scores


def flat(scores):
    return np.concatenate(list(scores.values()))


# How a model is loaded.


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-llama"
    model("llama").save_pretrained(path)
    tokenizer("byte_level").save_pretrained(path)
    return path


@pytest.mark.parametrize("shown", [True, False])
def test_loading_shows_no_bars_and_leaves_the_setting(directory, capfd, shown) -> None:
    before = transformers_logging.is_progress_bar_enabled()
    switch = transformers_logging.enable_progress_bar
    if not shown:
        switch = transformers_logging.disable_progress_bar
    switch()
    try:
        loading.load(str(directory), loading.LoadingOptions())
        assert transformers_logging.is_progress_bar_enabled() is shown
    finally:
        if before:
            transformers_logging.enable_progress_bar()
        else:
            transformers_logging.disable_progress_bar()
    assert "Loading weights" not in capfd.readouterr().err


def test_a_model_on_several_cards_is_not_given_indices_that_lie_on_the_first(monkeypatch) -> None:
    spread = copy.copy(model("llama"))
    spread.hf_device_map = {"model.embed_tokens": 0, "model.layers": 1}
    kept = []
    whole = spread.forward

    @functools.wraps(whole)
    def forward(*arguments, **options):
        kept.append(options.get("logits_to_keep"))
        return whole(*arguments, **options)

    monkeypatch.setattr(spread, "forward", forward)
    under_test = engine_of(spread)
    assert (
        under_test.profile.against(ScoringPath.CASCADE, 60) == "it is spread over several devices"
    )
    everything = range(len(ASKED.candidates))
    scores, _ = under_test.run(ScoringPath.PADDED, ASKED, everything)
    wanted = loop(model("llama"))
    for key, logprobs in wanted.items():
        np.testing.assert_allclose(scores[key], logprobs, atol=1e-4)
    assert kept
    assert all(isinstance(rows, list) for rows in kept)


def test_a_model_that_is_nowhere_is_not_found() -> None:
    with pytest.raises(ModelNotFoundError):
        loading.load("nobody/nothing", loading.LoadingOptions(device="cpu"))
