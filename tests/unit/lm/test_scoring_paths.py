"""Every path and family equals plain forward passes."""

import copy
import warnings

import numpy as np
import pytest
import torch
import transformers as tf
from attention import attend_one_by_one
from scipy.special import rel_entr
from tiny_models import (
    ASKED,
    CASCADE,
    FAMILIES,
    MASKED,
    PASSAGES,
    PREFIX,
    SHARING,
    SOFT_CAPPED,
    TOKENIZERS,
    encoded,
    engine,
    local,
    logits_of,
    model,
    request,
    tokenizer,
)

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ModelError, ScoringError
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.encoding import to_result
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.remote.remote_lm import RemoteLM
from ecs_plugins.lm.scoring import packed, varlen
from ecs_plugins.lm.scoring.packs import TokenBudget
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.request import Comparison, Continuation, EngineResult, TokenRequest
from ecs_plugins.lm.scoring.runner import logprobs_of
from ecs_plugins.lm.scoring.tensors import Readings, divergence_of

pytestmark = pytest.mark.model

TOLERANCE = 1e-4
FAST = (
    ScoringPath.CASCADE,
    ScoringPath.VARLEN,
    ScoringPath.MASKED,
    ScoringPath.PADDED,
)


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    """The attention of a card, computed here."""
    monkeypatch.setattr(varlen, "attend_sequences", attend_one_by_one)


def paths_of(family):
    planned = (ScoringPath.CASCADE, ScoringPath.VARLEN) if family == SOFT_CAPPED else ()
    return [path for path in ScoringPath if path not in planned]


def plain(family, asked):
    """By one forward per candidate, with scipy: (log-probability, divergence) of every token."""
    rows, targets = {}, {}
    for key, targets[key], logits in logits_of(model(family), asked):
        exact = torch.softmax(logits.double(), dim=-1)
        rows[key] = exact.numpy()
    out = {}
    for key, own in rows.items():
        base = rows[0, key[1]]
        triples = zip(own, base, targets[key], strict=True)
        pairs = []
        for p, q, token in triples:
            divergence = rel_entr(p, q).sum()
            pairs.append((np.log(p[token]), divergence))
        out[key] = np.array(pairs)
    return out


def found(result):
    """Log-probability and divergence of every scored token, by candidate and continuation."""
    out = {}
    for k, row in enumerate(result.scores):
        for m, segments in enumerate(row):
            pairs = [np.stack((s.logprobs, s.divergence), axis=1) for s in segments]
            out[k, m] = np.concatenate(pairs)
    return out


def run(under_test, path, asked, budget=None):
    """Return a path's result for a request with divergences."""
    everything = range(len(asked.candidates))
    tokens = TokenBudget(budget or 2048)
    scores, computed = under_test.run(path, asked, everything, tokens)
    result = EngineResult(scores, {}, computed)
    return found(to_result(asked, result))


def reference(under_test, asked):
    everything = range(len(asked.candidates))
    scores, _ = under_test.run(ScoringPath.REFERENCE, asked, everything)
    return scores


def largest_difference(a, b):
    assert a.keys() == b.keys()
    differences = [np.abs(a[key] - b[key]).max() for key in a]
    return float(max(differences))


def assert_same(got, wanted, tolerance=TOLERANCE):
    assert got.keys() == wanted.keys()
    for key, values in wanted.items():
        np.testing.assert_allclose(got[key], values, atol=tolerance, rtol=1e-3)


# --- Paths and families ----------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [PREFIX, ""])
@pytest.mark.parametrize("family", SHARING)
def test_every_path_equals_plain_forwards(family, prefix) -> None:
    asked = request(prefix, divergence=True)
    wanted = plain(family, encoded(asked))
    values = np.concatenate(list(wanted.values()))
    logprobs, divergences = values.T
    assert np.std(logprobs) > 0.5
    assert divergences.max() > 0.1
    for path in paths_of(family):
        got = run(engine(family), path, encoded(asked), 40)
        assert_same(got, wanted)
        least = min(values[:, 1].min() for values in got.values())
        assert least == 0.0  # none is negative


@pytest.mark.parametrize("path", FAST)
@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_the_token_budget_changes_no_score(path, budget) -> None:
    asked = request(passages=PASSAGES * 3, divergence=True)
    wanted = plain("llama", encoded(asked))
    got = run(engine(), path, encoded(asked), budget)
    assert_same(got, wanted)


@pytest.mark.parametrize("tokens", TOKENIZERS)
@pytest.mark.parametrize("prefix", [PREFIX, ""])
def test_the_planned_path_equals_the_reference_behind_every_tokenizer(tokens, prefix) -> None:
    asked = encoded(request(prefix), tokens)
    assert asked.candidates[0] == ()
    under_test = engine()
    (got,) = under_test.score([asked])
    assert largest_difference(reference(under_test, asked), got.scores) < TOLERANCE


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_right_on_the_path_planned_for_it(name) -> None:
    under_test = engine(name)
    wanted, computed = under_test.run(ScoringPath.REFERENCE, ASKED, range(4))
    assert np.std(np.concatenate(list(wanted.values()))) > 0.3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (got,) = under_test.score([ASKED])
        planned = under_test._plan(ASKED.length(1))
    assert largest_difference(wanted, got.scores) < TOLERANCE
    assert planned == FAMILIES[name].path, under_test._failures
    slow = planned not in (CASCADE, MASKED)
    assert slow == any("without a shared prefix" in str(w.message) for w in caught)
    assert slow or got.computed_tokens < computed / 3


# --- What would be noticed ---------------------------------------------------------------------


def test_a_failed_self_check_falls_back_with_one_warning(monkeypatch) -> None:
    asked = encoded(request())
    honest = packed.score

    def off_by_a_tenth(*args):
        wrong = []
        for result in honest(*args):
            logprobs = [each + 0.1 for each in result.logprobs]
            wrong.append(result._replace(logprobs=logprobs))
        return wrong

    monkeypatch.setattr(packed, "score", off_by_a_tenth)
    under_test = engine()
    with pytest.warns(RuntimeWarning, match="self-check.*off by 0.1") as caught:
        results = [under_test.score([asked]) for _ in range(2)]
    assert len(caught) == 1
    (got,) = results[0]
    assert largest_difference(reference(under_test, asked), got.scores) < TOLERANCE


# --- What is computed, and with how much memory ------------------------------------------------


def test_computed_tokens_are_those_that_passed_through_the_model(monkeypatch) -> None:
    under_test = engine()
    under_test.warm_up()
    passed = []
    forward = under_test.runner.logits

    def counted(input_ids, *args, **kwargs):
        passed.append(input_ids.numel())
        return forward(input_ids, *args, **kwargs)

    monkeypatch.setattr(under_test.runner, "logits", counted)
    asked = encoded(request())
    (result,) = under_test.score([asked], token_budget=60)
    assert len(passed) > 2
    assert result.computed_tokens == sum(passed)


def test_a_duplicate_candidate_is_scored_once() -> None:
    under_test = engine()
    answer = Continuation((9,), ((0, 1),))
    one = TokenRequest((5,), ((7, 8),), (answer,))
    three = TokenRequest((5,), ((7, 8),) * 3, (answer,))
    (once,) = under_test.score([one])
    (again,) = under_test.score([three])
    assert again.computed_tokens == once.computed_tokens
    for k in range(3):
        assert again.scores[k, 0] == once.scores[0, 0]


def limit_memory(monkeypatch, under_test, largest):
    forward = under_test.runner.logits

    def limited(input_ids, *args, **kwargs):
        if input_ids.numel() > largest:
            raise torch.OutOfMemoryError("out of memory")
        return forward(input_ids, *args, **kwargs)

    monkeypatch.setattr(under_test.runner, "logits", limited)


@pytest.mark.parametrize("path", FAST)
def test_running_out_of_memory_halves_the_budget_and_goes_on(monkeypatch, path) -> None:
    asked = request(divergence=True)
    under_test = engine()
    limit_memory(monkeypatch, under_test, 120)
    budget, tokens = TokenBudget(10_000), encoded(asked)
    scores, _ = under_test.run(path, tokens, range(6), budget)
    result = EngineResult(scores, {}, 0)
    got = found(to_result(tokens, result))
    assert_same(got, plain("llama", encoded(asked)))
    assert budget.shrunk > 0
    assert budget.tokens < 200


def test_memory_for_not_even_one_path_is_a_scoring_error(monkeypatch) -> None:
    under_test = engine()
    limit_memory(monkeypatch, under_test, 0)
    asked = encoded(request())
    with pytest.raises(ScoringError, match="out of memory"):
        under_test.run(ScoringPath.CASCADE, asked, [0])


# --- Models and requests that are refused ------------------------------------------------------


def test_nan_logits_are_an_error_that_names_the_model() -> None:
    broken = copy.deepcopy(model("llama"))
    with torch.no_grad():
        weight = broken.model.layers[0].mlp.down_proj.weight
        weight.fill_(float("nan"))
    lm = LocalLM(broken, tokenizer("byte_level"), name="broken-llama")
    with pytest.raises(ScoringError, match="broken-llama returned NaN"):
        lm.score([request()])


def test_a_model_that_looks_ahead_is_refused() -> None:
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = tf.BertConfig(vocab_size=384, **small, intermediate_size=16, initializer_range=0.5)
    lm = LocalLM(tf.BertLMHeadModel(config).eval(), tokenizer("wordpiece"))
    with pytest.raises(ModelError, match="not a causal"):
        lm.score([request()])


@pytest.mark.parametrize(
    ("asked", "tokens", "message"),
    [
        (request("snow " * 400), "byte_level", "window of 256"),
        (request(answers=("  ",)), "wordpiece", "no tokens"),
    ],
)
def test_unscorable_requests_are_refused(asked, tokens, message) -> None:
    with pytest.raises(InvalidInputError, match=message):
        local(tokens=tokens).score([asked])


def test_a_passage_beyond_the_window_is_unscored_and_the_others_are_not() -> None:
    passages = ("snow", "snow " * 300)
    asked = request(passages=passages, divergence=True)
    (result,) = local().score([asked])
    assert list(result.unscored) == [2]
    assert "exceed the model's window of 256" in result.unscored[2]
    for key, values in found(result).items():
        as_it_should_be = np.isnan if key[0] == 2 else np.isfinite
        assert as_it_should_be(values).all()


def test_a_divergence_from_a_base_that_was_not_computed_is_refused() -> None:
    comparison = Comparison((1, 2))
    logits = torch.zeros(1, 8)
    rows = torch.tensor([0])
    with pytest.raises(ScoringError, match="empty candidate"):
        comparison.see((3, 1, 2), logits, rows, Readings())


def test_a_base_that_is_not_empty_is_refused() -> None:
    candidates = ((Segment("snow"),), ())
    continuations = ((Segment("x", scored=True),),)
    with pytest.raises(InvalidInputError, match="empty candidate"):
        ScoreRequest((), candidates, continuations, divergence=True)


def test_unsupported_requests_are_not_sent_to_a_server() -> None:
    remote = RemoteLM("http://127.0.0.1:9", tokenizer=tokenizer("byte_level"))
    with pytest.raises(ConfigurationError, match="use a LocalLM"):
        remote.score([request(divergence=True)])


# --- Precision ---------------------------------------------------------------------------------


def test_log_softmax_is_float32_for_a_half_precision_model() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = 8 * torch.randn(300, 50, generator=generator)
    logits = drawn.bfloat16()
    targets = torch.arange(300) % 50
    exact = torch.log_softmax(logits.double(), -1)
    wanted = exact[range(300), targets].numpy()
    got = logprobs_of(logits, targets, torch.arange(300))
    np.testing.assert_allclose(got, wanted, atol=1e-5)


# --- Divergence --------------------------------------------------------------------------------


def test_impossible_tokens_do_not_make_it_not_a_number() -> None:
    candidate = torch.tensor([[0.5, 0.5, 0.0]]).log()
    base = torch.tensor([[0.25, 0.25, 0.5]]).log()
    divergence = float(divergence_of(candidate, base))
    assert divergence == pytest.approx(np.log(2), abs=1e-6)
    assert float(divergence_of(candidate, candidate)) == 0.0
    assert np.isinf(float(divergence_of(base, candidate)))


def test_requests_that_are_merged_do_not_mix_their_bases() -> None:
    one = request(divergence=True)
    other = request("Snow fell in Rome.\n", answers=(" honey",), divergence=True)
    requests = [one, request(), other]
    first, without, second = local().score(requests)
    assert_same(found(first), plain("llama", encoded(one)))
    assert_same(found(second), plain("llama", encoded(other)))
    assert without.scores[1][0][0].divergence is None


# --- Through the seam --------------------------------------------------------------------------


def test_the_reference_can_be_asked_for_through_the_seam() -> None:
    lm = local()
    asked = request(passages=(*PASSAGES, "snow " * 300), divergence=True)
    (fast,) = lm.score([asked])
    (plainly,) = lm.score_by_reference([asked])
    assert plainly.computed_tokens > 2 * fast.computed_tokens
    assert list(plainly.unscored) == list(fast.unscored) == [6]
    assert_same(found(fast), found(plainly))
