import random
import warnings

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, SHARING, SLIDING, TOKENIZERS, case, model, tokenizer

from ecs_plugins.errors import InvalidInputError, ModelError, ScoringError
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.runtime import encode_request
from ecs_plugins.lm.scoring import packed
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.profile import ScoringPath, profile_of
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest
from ecs_plugins.lm.scoring.runner import Runner, TokenBudget, target_logprobs

TOLERANCE = 1e-4
LONG = " in Paris with Bob and honey, because the old train was late again in Rome"
PASSAGES = (
    "Ann moved to Paris in the spring.",
    "Bob sells bread, cheese and honey at the market on Sunday.",
    "Ann moved to Rome.",
    "Ann moved to Paris in the spring.",
    "snow",
)


def segments(text, **marks):
    return (Segment(text, **marks),)


def request(prefix="The market was closed.\n", passages=PASSAGES, answers=(" Paris", LONG)):
    head = (Segment("\nQuestion:", trusted=True), Segment(" Where does Ann live?", scored=True))
    return ScoreRequest(
        segments(prefix) if prefix else (),
        ((), *(segments(p) for p in passages)),
        tuple(
            (*head, Segment("\nAnswer:", trusted=True), Segment(a, scored=True)) for a in answers
        ),
    )


NOT_CASCADING = ("gemma2",)
"""Families whose attention is soft-capped; they share a prefix under a tree mask."""


def engine(family):
    runner = Runner(model(family), family)
    return ScoringEngine(runner, profile_of(model(family), runner.takes, 10**30))


def encoded(family, asked):
    return encode_request(LocalLM(model("llama"), tokenizer(family))._load().encoder, asked)


def largest_difference(a, b):
    assert a.keys() == b.keys()
    return max(float(np.abs(a[key] - b[key]).max()) for key in a)


@pytest.mark.filterwarnings("error:.*self-check", "ignore:.*slides over a window")
@pytest.mark.parametrize("tokens", TOKENIZERS)
@pytest.mark.parametrize("family", [*map(case, FAMILIES)])
@pytest.mark.parametrize("prefix", ["The market was closed.\n", ""])
def test_the_planned_path_equals_the_reference(family, tokens, prefix) -> None:
    asked = encoded(tokens, request(prefix))
    assert asked.candidates[0] == ()
    under_test = engine(family)
    everything = range(len(asked.candidates))
    wanted, _ = under_test.run(ScoringPath.REFERENCE, asked, everything)
    assert np.std(np.concatenate(list(wanted.values()))) > 0.5
    (got,) = under_test.score([asked])
    assert largest_difference(wanted, got.scores) < TOLERANCE


@pytest.mark.parametrize("family", [*map(case, SHARING)])
@pytest.mark.parametrize("budget", [1, 40, 100, 10_000])
def test_the_token_budget_changes_no_score(family, budget) -> None:
    asked = encoded("byte_level", request())
    under_test = engine(family)
    everything = range(len(asked.candidates))
    wanted, _ = under_test.run(ScoringPath.REFERENCE, asked, everything)
    for path in (ScoringPath.CASCADE, ScoringPath.MASKED, ScoringPath.PADDED):
        if path is ScoringPath.CASCADE and family in NOT_CASCADING:
            continue
        got, _ = under_test.run(path, asked, everything, TokenBudget(budget))
        assert largest_difference(wanted, got) < TOLERANCE


@pytest.mark.parametrize("length", [1, 30])
@pytest.mark.parametrize("prefix", [(), (5,), (5, 6), tuple(range(20, 60))])
def test_answers_of_one_and_of_thirty_tokens_behind_prefixes_of_any_length(length, prefix) -> None:
    answer = tuple(100 + 7 * i % 200 for i in range(length))
    asked = TokenRequest(
        prefix or (1,),
        ((), (9, 8, 7), (9,)),
        (Continuation(answer, ((0, length),)), Continuation((4, *answer), ((1, 1 + length),))),
    )
    under_test = engine("llama")
    wanted, _ = under_test.run(ScoringPath.REFERENCE, asked, range(3))
    got, _ = under_test.run(ScoringPath.CASCADE, asked, range(3))
    assert largest_difference(wanted, got) < TOLERANCE


def test_the_order_of_candidates_changes_no_score() -> None:
    lm = LocalLM(model("llama"), tokenizer("byte_level"))
    shuffled = list(PASSAGES)
    random.Random(3).shuffle(shuffled)
    (first,) = lm.score([request()])
    (second,) = lm.score([request(passages=shuffled)])
    for passage in PASSAGES:
        a = first.scores[1 + PASSAGES.index(passage)]
        b = second.scores[1 + shuffled.index(passage)]
        for x, y in zip(a, b, strict=True):
            for s, t in zip(x, y, strict=True):
                np.testing.assert_allclose(s.logprobs, t.logprobs, atol=TOLERANCE)


@pytest.mark.parametrize("family", SLIDING)
def test_ignoring_a_sliding_window_would_be_noticed(family) -> None:
    asked = encoded("byte_level", request())
    under_test = engine(family)
    wanted, _ = under_test.run(ScoringPath.REFERENCE, asked, range(3))
    with pytest.raises(ScoringError, match="slides over a window"):
        under_test.run(ScoringPath.CASCADE, asked, range(3))
    naive, _ = under_test.run(ScoringPath.MASKED, asked, range(3))
    assert largest_difference(wanted, naive) > 0.05


def test_positions_that_do_not_restart_would_be_noticed(monkeypatch) -> None:
    asked = encoded("byte_level", request())
    under_test = engine("llama")
    wanted, _ = under_test.run(ScoringPath.REFERENCE, asked, range(4))
    plant = packed.plant

    def running_positions(paths):
        forest = plant(paths)
        forest.depths = list(range(len(forest.tokens)))
        return forest

    monkeypatch.setattr(packed, "plant", running_positions)
    wrong, _ = under_test.run(ScoringPath.CASCADE, asked, range(4))
    assert largest_difference(wanted, wrong) > 0.05


@pytest.mark.parametrize("family", [*map(case, SHARING)])
def test_a_model_cascades_unless_its_attention_cannot(family) -> None:
    under_test = engine(family)
    planned = under_test._plan(60)
    expected = ScoringPath.MASKED if family in NOT_CASCADING else ScoringPath.CASCADE
    assert planned is expected


def test_a_failed_self_check_falls_back_with_one_warning(monkeypatch) -> None:
    asked = encoded("byte_level", request())
    wanted, _ = engine("llama").run(ScoringPath.REFERENCE, asked, range(6))
    honest = packed.score

    def off_by_a_tenth(*args):
        return [r._replace(logprobs=[x + 0.1 for x in r.logprobs]) for r in honest(*args)]

    monkeypatch.setattr(packed, "score", off_by_a_tenth)
    under_test = engine("llama")
    with pytest.warns(RuntimeWarning, match="self-check.*off by 0.1") as caught:
        (got,), _ = under_test.score([asked]), under_test.score([asked])
    assert len(caught) == 1
    assert largest_difference(wanted, got.scores) < TOLERANCE


def test_a_window_is_an_obstacle_only_beyond_it() -> None:
    short = TokenRequest((5, 6), ((), (7,)), (Continuation((8, 9), ((0, 2),)),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine("mistral_window").score([short])
    with pytest.warns(RuntimeWarning, match="slides over a window of 12"):
        engine("mistral_window").score([encoded("byte_level", request())])


def test_the_fast_path_is_taken_and_computes_fewer_tokens() -> None:
    asked = encoded("byte_level", request())
    under_test = engine("llama")
    everything = range(len(asked.candidates))
    _, plain = under_test.run(ScoringPath.REFERENCE, asked, everything)
    assert under_test.score([asked])[0].computed_tokens < plain / 2


def test_computed_tokens_are_those_that_passed_through_the_model(monkeypatch) -> None:
    under_test = engine("llama")
    under_test.warm_up()
    passed = []
    forward = under_test.runner.logits

    def counted(input_ids, *args, **kwargs):
        passed.append(input_ids.numel())
        return forward(input_ids, *args, **kwargs)

    monkeypatch.setattr(under_test.runner, "logits", counted)
    (result,) = under_test.score([encoded("byte_level", request())], token_budget=60)
    assert len(passed) > 2
    assert result.computed_tokens == sum(passed)


def test_a_duplicate_candidate_is_scored_once() -> None:
    under_test = engine("llama")
    one = TokenRequest((5,), ((7, 8),), (Continuation((9,), ((0, 1),)),))
    three = TokenRequest((5,), ((7, 8),) * 3, one.continuations)
    (once,), (again,) = under_test.score([one]), under_test.score([three])
    assert again.computed_tokens == once.computed_tokens
    assert [again.scores[k, 0] for k in range(3)] == [once.scores[0, 0]] * 3


@pytest.mark.parametrize("path", [ScoringPath.CASCADE, ScoringPath.MASKED, ScoringPath.PADDED])
def test_running_out_of_memory_halves_the_budget_and_goes_on(monkeypatch, path) -> None:
    asked = encoded("byte_level", request())
    under_test = engine("llama")
    wanted, _ = under_test.run(ScoringPath.REFERENCE, asked, range(6))
    forward = under_test.runner.logits
    largest = 90

    def limited(input_ids, *args, **kwargs):
        if input_ids.numel() > largest:
            raise torch.OutOfMemoryError("out of memory")
        return forward(input_ids, *args, **kwargs)

    monkeypatch.setattr(under_test.runner, "logits", limited)
    budget = TokenBudget(10_000)
    got, _ = under_test.run(path, asked, range(6), budget)
    assert largest_difference(wanted, got) < TOLERANCE
    assert budget.shrunk > 0
    assert budget.tokens <= largest


def test_memory_for_not_even_one_path_is_a_scoring_error(monkeypatch) -> None:
    under_test = engine("llama")

    def never(*args, **kwargs):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(under_test.runner, "logits", never)
    with pytest.raises(ScoringError, match="out of memory"):
        under_test.run(ScoringPath.CASCADE, encoded("byte_level", request()), [0])


def test_nan_logits_are_an_error_that_names_the_model() -> None:
    import copy

    broken = copy.deepcopy(model("llama"))
    with torch.no_grad():
        broken.model.layers[0].mlp.down_proj.weight.fill_(float("nan"))
    lm = LocalLM(broken, tokenizer("byte_level"), name="broken-llama")
    with pytest.raises(ScoringError, match="broken-llama returned NaN"):
        lm.score([request()])


def test_a_model_that_looks_ahead_is_refused() -> None:
    import transformers as tf

    torch.manual_seed(0)
    bert = tf.BertLMHeadModel(
        tf.BertConfig(
            vocab_size=384,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            initializer_range=0.5,
        )
    ).eval()
    with pytest.raises(ModelError, match="not a causal"):
        LocalLM(bert, tokenizer("wordpiece")).score([request()])


def test_a_prefix_that_fills_the_window_is_refused_with_the_numbers() -> None:
    lm = LocalLM(model("llama"), tokenizer("byte_level"))
    with pytest.raises(InvalidInputError, match="window of 256"):
        lm.score([request("snow " * 400)])


def test_a_passage_beyond_the_window_is_unscored_and_the_others_are_not() -> None:
    lm = LocalLM(model("llama"), tokenizer("byte_level"))
    (result,) = lm.score([request(passages=("snow", "snow " * 300))])
    assert list(result.unscored) == [2]
    assert "exceed the model's window of 256" in result.unscored[2]
    assert np.isnan(result.scores[2][0][0].logprobs).all()
    assert np.isfinite(result.scores[1][1][1].sum)


def test_an_answer_without_tokens_is_refused() -> None:
    lm = LocalLM(model("llama"), tokenizer("wordpiece"))
    with pytest.raises(InvalidInputError, match="no tokens"):
        lm.score([request(answers=("  ",))])


def test_log_softmax_is_float32_for_a_half_precision_model() -> None:
    logits = (torch.randn(300, 50, generator=torch.Generator().manual_seed(0)) * 8).bfloat16()
    targets = [n % 50 for n in range(300)]
    wanted = torch.log_softmax(logits.double(), -1)[range(300), targets]
    np.testing.assert_allclose(target_logprobs(logits, targets), wanted.numpy(), atol=1e-5)


def test_half_precision_is_close_to_its_own_reference() -> None:
    import copy

    half = copy.deepcopy(model("llama")).bfloat16()
    runner = Runner(half, "half")
    asked = encoded("byte_level", request())
    under_test = ScoringEngine(runner, profile_of(half, runner.takes, 10**30))
    wanted, _ = under_test.run(ScoringPath.REFERENCE, asked, range(6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = under_test.score([asked])[0].scores
    differences = np.concatenate([np.abs(wanted[key] - got[key]) for key in wanted])
    assert differences.mean() < 0.1


def test_the_reference_is_what_a_plain_forward_says() -> None:
    asked = TokenRequest((5, 6), ((7,),), (Continuation((8, 9, 10), ((1, 3),)),))
    scored, _ = engine("gpt2").run(ScoringPath.REFERENCE, asked, [0])
    with torch.inference_mode():
        logits = model("gpt2")(torch.tensor([[5, 6, 7, 8, 9, 10]])).logits[0].log_softmax(-1)
    np.testing.assert_allclose(scored[0, 0], [logits[3, 9], logits[4, 10]], atol=1e-6)
