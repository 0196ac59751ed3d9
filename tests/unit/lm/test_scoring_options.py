import pickle

import numpy as np
import pytest
from tiny_models import WINDOW, model, tokenizer

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest


def lm(**options):
    return LocalLM(model("llama"), tokenizer("byte_level"), **options)


LONG_ENOUGH_TO_KEEP = "The market was closed, and Bob sells nobody bread, cheese and honey. " * 3


def asked(prefix=LONG_ENOUGH_TO_KEEP, answer=" Paris"):
    return ScoreRequest(
        (Segment(prefix),), ((), (Segment(" Ann."),)), ((Segment(answer, scored=True),),)
    )


@pytest.fixture
def engine_cache():
    """The cache of a fresh runtime, and the handle on it."""
    made = lm()
    return made, made._load().engine.cache


def test_a_second_call_finds_the_prefix(engine_cache) -> None:
    handle, _ = engine_cache
    (first,) = handle.score([asked()])
    (second,) = handle.score([asked()])
    assert second.computed_tokens < first.computed_tokens
    assert handle.cache_statistics.hits == 1
    assert handle.cache_statistics.bytes > 0


def test_clearing_the_cache_forgets_prefixes_and_counts(engine_cache) -> None:
    handle, cache = engine_cache
    (first,) = handle.score([asked()])
    handle.clear_cache()
    assert handle.cache_statistics == type(cache.statistics)()
    assert handle.score([asked()])[0].computed_tokens == first.computed_tokens


def test_the_self_check_leaves_no_trace_in_the_cache(engine_cache) -> None:
    handle, cache = engine_cache
    handle.warmup()
    assert cache.statistics == type(cache.statistics)()


def test_no_bytes_keep_no_prefix() -> None:
    handle = lm(cache_bytes=0)
    first, second = (handle.score([asked()])[0] for _ in range(2))
    assert first.computed_tokens == second.computed_tokens
    assert handle.cache_statistics.entries == 0
    assert first.scores[1][0][0].sum == pytest.approx(second.scores[1][0][0].sum, abs=1e-5)


def test_a_negative_cache_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cache_bytes"):
        lm(cache_bytes=-1)


def test_a_long_prefix_is_refused_with_the_numbers_unless_truncation_is_asked_for() -> None:
    long = "snow " * 400
    with pytest.raises(
        InvalidInputError, match=rf"together more than the model's window of {WINDOW}"
    ):
        lm().score([asked(long)])
    with pytest.warns(RuntimeWarning, match=rf"cut from the left to \d+.*window of {WINDOW}"):
        (result,) = lm(truncate_prefix=True).score([asked(long)])
    assert result.unscored == {}
    assert all(np.isfinite(row[0][0].sum) for row in result.scores)


def test_a_truncated_prefix_scores_like_its_tail() -> None:
    words = " ".join(f"bread{n}" for n in range(300))
    handle = lm(truncate_prefix=True)
    runtime = handle._load()
    with pytest.warns(RuntimeWarning, match="cut from the left"):
        (result,) = handle.score([asked(words)])
    from ecs_plugins.lm.runtime import encode_request

    whole = encode_request(runtime.encoder, asked(words))
    longest = max(map(len, whole.candidates)) + whole.longest_continuation
    tail = TokenRequest(whole.prefix[-(WINDOW - longest) :], whole.candidates, whole.continuations)
    (wanted,) = runtime.engine.score([tail])
    for k in range(2):
        np.testing.assert_allclose(result.scores[k][0][0].logprobs, wanted.scores[k, 0], atol=1e-5)


CONTINUATION = (Continuation((7, 8, 9), ((1, 3),)),)


def test_truncation_keeps_the_lead_and_the_end() -> None:
    request = TokenRequest((1, *range(100, 140)), ((), (5, 6)), CONTINUATION)
    with pytest.warns(RuntimeWarning, match="41 tokens was cut from the left to 15"):
        cut = request.truncated(20, lead=1)
    assert cut.prefix == (1, *range(126, 140))
    assert cut.length(1) == 20


def test_truncation_leaves_alone_what_fits() -> None:
    request = TokenRequest((1, 2, 3), ((), (5, 6)), CONTINUATION)
    assert request.truncated(20) is request


def test_a_candidate_that_never_fits_does_not_cost_the_others_their_prefix() -> None:
    request = TokenRequest(tuple(range(30)), ((5,), tuple(range(50))), CONTINUATION)
    with pytest.warns(RuntimeWarning, match="cut"):
        cut = request.truncated(20)
    assert len(cut.prefix) == 16


def test_the_options_travel_with_a_pickle(tmp_path) -> None:
    model("llama").save_pretrained(tmp_path)
    tokenizer("byte_level").save_pretrained(tmp_path)
    made = LocalLM.from_pretrained(tmp_path, cache_bytes=5, truncate_prefix=True, dtype="bfloat16")
    again = pickle.loads(pickle.dumps(made))
    assert again._options == made._options
    assert repr(again) == repr(made)
