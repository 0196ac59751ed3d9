import copy
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.special import rel_entr
from tiny_models import SHARING, case, model, tokenizer

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ScoringError
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.remote.model import RemoteLM
from ecs_plugins.lm.runtime import encode_request, to_result
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.profile import ScoringPath, profile_of
from ecs_plugins.lm.scoring.request import Comparison, EngineResult, divergence_of
from ecs_plugins.lm.scoring.runner import Runner, TokenBudget
from ecs_plugins.lm.worker import Scoring, Worker

TOLERANCE = 1e-4
PREFIX = "The market was closed, and nobody knew why the old lighthouse was painted twice.\n"
PASSAGES = (
    "Ann moved to Paris in the spring.",
    "Bob sells bread, cheese and honey at the market on Sunday.",
    "Ann moved to Paris in the spring.",
    "snow",
)
SOFT_CAPPED = ("gemma2", ScoringPath.CASCADE)
PATHS = [case(f, path) for f in SHARING for path in ScoringPath if (f, path) != SOFT_CAPPED]


def request(divergence=True, prefix=PREFIX, passages=PASSAGES, answers=(" Paris", " in Rome")):
    head = (Segment("\nQuestion:", trusted=True), Segment(" Where does Ann live?", scored=True))
    return ScoreRequest(
        (Segment(prefix),) if prefix else (),
        ((), *((Segment(passage),) for passage in passages)),
        tuple(
            (*head, Segment("\nAnswer:", trusted=True), Segment(a, scored=True)) for a in answers
        ),
        divergence=divergence,
    )


def local(family="llama"):
    return LocalLM(model(family), tokenizer("byte_level"))


def engine(family):
    runner = Runner(model(family), family)
    return ScoringEngine(runner, profile_of(model(family), runner.takes, 10**30))


def plain(family, asked):
    """One forward per candidate, whole distributions, scipy: by (k, m), all scored tokens."""
    rows = {}
    for k, candidate in enumerate(asked.candidates):
        for m, continuation in enumerate(asked.continuations):
            ids = asked.prefix + candidate + continuation.ids
            at = [len(ids) - len(continuation.ids) + i - 1 for a, b in continuation.spans
                  for i in range(a, b)]  # fmt: skip
            with torch.inference_mode():
                logits = model(family)(torch.tensor([ids])).logits[0, at]
            rows[k, m] = torch.softmax(logits.double(), dim=-1).numpy()
    return {
        (k, m): [float(rel_entr(p, q).sum()) for p, q in zip(p, rows[0, m], strict=True)]
        for (k, m), p in rows.items()
    }


def flat(result):
    return {
        (k, m): np.concatenate([segment.divergence for segment in segments])
        for k, row in enumerate(result.scores)
        for m, segments in enumerate(row)
    }


def encoded(asked):
    return encode_request(local()._load().encoder, asked)


def assert_same(found, wanted, tolerance=TOLERANCE):
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, atol=tolerance, rtol=1e-3)


@pytest.mark.parametrize("prefix", [PREFIX, ""])
@pytest.mark.parametrize(("family", "path"), PATHS)
def test_every_path_gives_the_divergence_of_plain_forwards(family, path, prefix):
    asked = encoded(request(prefix=prefix))
    wanted = plain(family, asked)
    scores, computed = engine(family).run(path, asked, range(5), TokenBudget(40))
    found = flat(to_result(asked, EngineResult(scores, {}, computed)))
    assert max(max(values) for values in wanted.values()) > 0.1
    assert_same(found, wanted)


@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_a_request_that_is_computed_in_parts_keeps_its_base(budget):
    asked = request(passages=PASSAGES * 3)
    lm = LocalLM(model("llama"), tokenizer("byte_level"), token_budget=budget, cache_bytes=0)
    (result,) = lm.score([asked])
    assert_same(flat(result), plain("llama", encoded(asked)))


def test_requests_that_are_merged_do_not_mix_their_bases():
    one, other = request(), request(prefix="Snow fell in Rome.\n", answers=(" honey",))
    lm = local()
    first, plain_one, second = lm.score([one, request(divergence=False), other])
    assert_same(flat(first), plain("llama", encoded(one)))
    assert_same(flat(second), plain("llama", encoded(other)))
    assert plain_one.scores[1][0][0].divergence is None


def test_asking_again_finds_the_same_behind_the_cached_prefix():
    lm = local()
    (first,), (again,) = lm.score([request()]), lm.score([request()])
    assert again.computed_tokens < first.computed_tokens
    assert_same(flat(again), flat(first), 1e-5)


def test_callers_in_several_threads_get_their_own_divergences():
    under_test = engine("llama")
    worker = Worker()
    asked = [encoded(request(prefix=f"{PREFIX} Day {n}.")) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [Scoring(under_test, [one], 256, 100, None) for one in asked]
        results = pool.map(worker.compute, jobs)
    for one, (result,) in zip(asked, results, strict=True):
        assert_same(flat(to_result(one, result)), plain("llama", one))


def test_running_out_of_memory_does_not_lose_the_base(monkeypatch):
    asked = encoded(request())
    under_test = engine("llama")
    forward = under_test.runner.logits

    def limited(input_ids, *args, **kwargs):
        if input_ids.numel() > 90:
            raise torch.OutOfMemoryError("out of memory")
        return forward(input_ids, *args, **kwargs)

    monkeypatch.setattr(under_test.runner, "logits", limited)
    scores, computed = under_test.run(ScoringPath.CASCADE, asked, range(5), TokenBudget(10_000))
    found = flat(to_result(asked, EngineResult(scores, {}, computed)))
    assert_same(found, plain("llama", asked))


def test_the_direction_is_from_the_base_to_the_candidate():
    candidate = torch.tensor([[0.92, 0.03, 0.05]]).log()
    base = torch.tensor([[0.35, 0.20, 0.45]]).log()
    wanted = 0.92 * np.log(0.92 / 0.35) + 0.03 * np.log(0.03 / 0.2) + 0.05 * np.log(0.05 / 0.45)
    assert float(divergence_of(candidate, base)) == pytest.approx(wanted, abs=1e-6)
    assert float(divergence_of(base, candidate)) != pytest.approx(wanted, abs=1e-2)


def test_a_divergence_far_below_rounding_of_a_large_vocabulary_is_nearly_zero():
    logits = torch.randn(2, 50_000, generator=torch.Generator().manual_seed(0)) * 5
    base = torch.log_softmax(logits, dim=-1)
    other = torch.log_softmax(logits + 3.0, dim=-1)
    assert float(divergence_of(other, base).max()) < 1e-5


def test_impossible_tokens_do_not_make_it_not_a_number():
    candidate = torch.tensor([[0.5, 0.5, 0.0]]).log()
    base = torch.tensor([[0.25, 0.25, 0.5]]).log()
    assert float(divergence_of(candidate, base)) == pytest.approx(np.log(2), abs=1e-6)
    assert float(divergence_of(candidate, candidate)) == 0.0
    assert np.isinf(float(divergence_of(base, candidate)))


def test_a_candidate_beyond_the_window_has_no_divergence():
    (result,) = local().score([request(passages=("snow", "snow " * 300))])
    assert list(result.unscored) == [2]
    assert np.isnan(result.scores[2][0][0].divergence).all()
    assert np.isfinite(result.scores[1][0][0].divergence).all()


def test_a_half_precision_model_compares_in_float32():
    half = copy.deepcopy(model("llama")).bfloat16()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (result,) = LocalLM(half, tokenizer("byte_level")).score([request()])
    (exact,) = local().score([request()])
    for key, values in flat(exact).items():
        assert np.abs(flat(result)[key] - values).mean() < 0.1


def test_a_divergence_from_a_base_that_was_not_computed_is_refused():
    with pytest.raises(ScoringError, match="empty candidate"):
        Comparison((1, 2)).see((3, 1, 2), torch.zeros(1, 8), [0])


def test_a_base_that_is_not_empty_is_refused():
    with pytest.raises(InvalidInputError, match="empty candidate"):
        ScoreRequest((), ((Segment("snow"),), ()), ((Segment("x", scored=True),),), divergence=True)


def test_a_server_is_not_asked_for_what_it_cannot_give():
    remote = RemoteLM("http://127.0.0.1:9", tokenizer=tokenizer("byte_level"))
    with pytest.raises(ConfigurationError, match="use a LocalLM"):
        remote.score([request()])


def test_the_fake_diverges_by_what_a_passage_brings():
    asked = request(passages=("market closed", "Ann moved to Paris.", "Paris " * 3))
    (result,) = FakeLanguageModel().score([asked])
    known, new, *_ = (row[0][1].divergence for row in result.scores[1:])
    assert result.scores[0][0][1].divergence == pytest.approx([0.0])
    assert known == pytest.approx([0.0])
    assert new[0] > 0.01
    assert new.shape == result.scores[2][0][1].logprobs.shape


def test_the_reference_can_be_asked_for_through_the_seam():
    lm, asked = local(), request(passages=(*PASSAGES, "snow " * 300))
    (fast,), (plainly,) = lm.score([asked]), lm.score_by_reference([asked])
    assert plainly.computed_tokens > 2 * fast.computed_tokens
    assert list(plainly.unscored) == list(fast.unscored) == [5]
    for row, other in zip(fast.scores[:5], plainly.scores[:5], strict=True):
        for a, b in zip(row, other, strict=True):
            for s, t in zip(a, b, strict=True):
                np.testing.assert_allclose(s.logprobs, t.logprobs, atol=TOLERANCE)
                np.testing.assert_allclose(s.divergence, t.divergence, atol=TOLERANCE)


def test_the_base_diverges_from_itself_by_nothing_and_nothing_is_negative():
    (result,) = local().score([request()])
    for (k, _), values in flat(result).items():
        assert (values >= 0).all()
        assert (values == 0).all() or k > 0
