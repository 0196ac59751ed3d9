"""Every causal architecture of the installed transformers is scored as it scores itself."""

import contextlib
import warnings

import numpy as np
import pytest
import torch
from architectures import NAMES, build, options_of
from tiny_models import ASKED, engine_of, ids, logits_of
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ecs_plugins.errors import ModelError
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest

pytestmark = pytest.mark.model

TOLERANCE = 1e-4
THRESHOLDS = (24, 90)
"""Below all prompts, and between them."""

NOT_TINY = {
    "blt": "its tables of hashed bytes have millions of rows",
    "cohere_compass_text": "its rotary parameters do not follow from its layers",
    "dbrx": "its nested configurations have no defaults that fit",
    "dots3_note": "its text part is dots3_note_text",
    "dots3_note_text": "its layers differ in sizes that no field tells",
    "gemma4_assistant": "it drafts for another model",
    "gemma4_unified_assistant": "it drafts for another model",
    "git": "it describes images, with a tower of its own",
    "moss_transcribe_diarize": "it transcribes sound",
    "musicgen": "it makes music",
    "musicgen_melody": "it makes music",
    "phi4_multimodal": "its towers for images and sound have sizes of their own",
    "qwen4_exp_text": "its tables of n-grams follow from sizes that no field tells",
    "reformer": "its position table is factored by the length of a training text",
    "xlstm": "its head size follows from sizes that no field tells",
    "zamba": "transformers ties its shared layers by number",
    "zamba2": "transformers ties its shared layers by number",
}


def built(kind, threshold, **options):
    if kind in NOT_TINY:
        pytest.skip(NOT_TINY[kind])
    if {"text_config", "decoder"} & set(CONFIG_MAPPING[kind].sub_configs):
        pytest.skip("its text part has a name of its own")
    return build(kind, threshold, **options)


def plain(model, asked):
    """Log-probabilities by one forward per candidate and continuation."""
    out = {}
    for key, tokens, rows in logits_of(model, asked):
        logprobs = torch.log_softmax(rows.float(), -1)
        out[key] = logprobs[range(len(tokens)), tokens].numpy()
    return out


def off_by(model, under_test, asked=ASKED):
    """Return the largest error, also of a second call with a warm cache."""
    wanted = plain(model, asked)
    logprobs = np.concatenate(list(wanted.values()))
    assert np.std(logprobs) > 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        calls = [under_test.score([asked])[0].scores for _ in range(2)]
    assert all(scores.keys() == wanted.keys() for scores in calls)
    errors = []
    for got in calls:
        errors.extend(np.abs(wanted[key] - got[key]).max() for key in wanted)
    return float(max(errors))


def thresholds_of(kind) -> list[int]:
    """One will do where a configuration names no length: both models would be the same."""
    short, long = THRESHOLDS
    cls = CONFIG_MAPPING[kind]
    try:
        is_same = options_of(cls, short) == options_of(cls, long)
    except Exception:  # it has no defaults, which `built` skips
        return [short]
    return [short] if is_same else [short, long]


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_an_architecture_is_exact_or_refused(kind) -> None:
    for threshold in thresholds_of(kind):
        model = built(kind, threshold)
        with contextlib.suppress(ModelError):
            assert off_by(model, engine_of(model, kind)) < TOLERANCE


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 2.5, 3.0, 4.0],
}
SPARSE = ("axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4", "doge")


@pytest.mark.parametrize("window", [24, 150])
def test_local_attention_by_index_is_not_packed_even_for_prompts_within_it(window) -> None:
    model = built("gpt_neo", window)
    under_test = engine_of(model)
    assert off_by(model, under_test) < TOLERANCE
    assert under_test.path_for(100)[0] == ScoringPath.PADDED


def test_a_packed_row_beyond_a_length_of_the_configuration_is_checked(monkeypatch) -> None:
    model = built("gpt_neo", 150)
    under_test = engine_of(model)
    under_test.profile.obstacles[ScoringPath.MASKED].clear()
    assert off_by(model, under_test) < TOLERANCE
    assert under_test._failures[ScoringPath.MASKED]


@pytest.mark.parametrize("kind", [kind for kind in SPARSE if kind in NAMES])
@pytest.mark.parametrize(
    ("kept", "known"),
    [
        (90, True),
        (24, True),
        (24, False),
    ],
)
def test_sparse_attention_goes_one_by_one_beyond_the_keys_it_keeps(kind, kept, known) -> None:
    model = built(kind, kept)
    under_test = engine_of(model)
    if not known:  # the self-check alone
        under_test.profile.obstacles[ScoringPath.PADDED].clear()
    assert off_by(model, under_test) < TOLERANCE
    answer = Continuation(ids(2, 9), ((0, 9),))
    short = TokenRequest(ids(3, 20), ((), ids(1, 9)), (answer,))
    assert off_by(model, under_test, short) < TOLERANCE


@pytest.mark.parametrize("first", [96, 100, 103, 107])
def test_a_rotary_scaling_by_length_is_exact_on_either_side_of_the_first_length(first) -> None:
    rope = {**LONGROPE, "original_max_position_embeddings": first}
    model = built("phi3", 24, original_max_position_embeddings=first, rope_parameters=rope)
    assert off_by(model, engine_of(model)) < TOLERANCE


def test_queries_scaled_by_position_are_exact_on_either_side_of_the_first_length() -> None:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 8.0,
        "llama_4_scaling_beta": 2.0,
        "original_max_position_embeddings": 90,
    }
    model = built("ministral3", 24, rope_parameters=rope)
    assert off_by(model, engine_of(model)) < TOLERANCE


def test_an_architecture_wrong_beyond_a_length_is_refused_there(monkeypatch) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0}
    rope["original_max_position_embeddings"] = 90
    model = built("llama", 24, rope_parameters=rope)
    under_test = engine_of(model)
    honest = under_test.run

    def wrong_beyond(path, request, *others):
        scores, computed = honest(path, request, *others)
        if path in (ScoringPath.CASCADE, ScoringPath.MASKED):
            for key, logprobs in scores.items():
                beyond = request.length(key[0]) > 90
                scores[key] = logprobs + beyond
        return scores, computed

    monkeypatch.setattr(under_test, "run", wrong_beyond)
    assert under_test.path_for(91)[0] == ScoringPath.PADDED
    assert under_test.path_for(90)[0] == ScoringPath.CASCADE
