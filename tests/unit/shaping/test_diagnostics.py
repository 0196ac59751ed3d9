import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, LabelledExample, ModelDiagnostics
from ecs_plugins.shaping.diagnostics import (
    Estimate,
    Fitness,
    best_threshold,
    held_out_threshold,
    question_auc,
)
from ecs_plugins.shaping.signals import QueryLikelihood
from ecs_plugins.shaping.signals.base import UnitUtility
from tests.unit.shaping.outcomes import kept

QUESTIONS = 22


def example(n, *, answer=True):
    return LabelledExample(
        f"Who paints{n} boats{n} near harbour{n}?",
        (
            f"The tram number {n} was late again.",
            f"On Monday Anna{n} paints{n} boats{n} near harbour{n}.",
            f"Nobody near town{n} likes soup{n}.",
        ),
        (1,),
        (f"Anna{n}",) if answer else (),
    )


EXAMPLES = [example(n) for n in range(QUESTIONS)]


def by_overlap(context, scored):
    """Fake whose scores differ a little by context, so that nothing ties."""
    words = {word.lower() for word in context.split()}
    jitter = (sum(map(ord, context)) % 97) / 1e4
    nats = 0.0
    for word in scored.split():
        nats += jitter
        nats += 1.0 if word.lower() in words else 3.0
    return -nats


class Bad(FakeLanguageModel):
    """Says the same of evidence and distractors."""

    def __init__(self):
        super().__init__(lambda context, scored: -1.0 - (hash_of(context + scored) % 1000) / 1000)


def hash_of(text):
    return sum(ord(letter) * (n + 1) for n, letter in enumerate(text)) * 2654435761 % 2**32


def good():
    return FakeLanguageModel(by_overlap, name="good")


def measure(model=None, examples=EXAMPLES, signals=("query_likelihood",), **options):
    return ModelDiagnostics.measure(
        model or good(),
        examples,
        signals=signals,
        **options,
    )


def test_a_model_that_tells_evidence_from_distractors_is_fit_and_the_report_says_so():
    found = measure()
    signal = found.signal("query_likelihood")
    assert found.verdict is signal.verdict is Fitness.FIT
    assert signal.auc.value == 1.0
    assert signal.questions == len(EXAMPLES)
    assert signal.threshold.precision > 0.9
    assert signal.threshold.recall > 0.9
    assert signal.threshold.value > signal.unrelated
    assert signal.tokens > 1.0
    text = found.report()
    assert "good is fit for context shaping" in text
    for word in ("query_likelihood", "threshold", "precision", "unrelated", "tokens"):
        assert word in text


def test_a_model_that_cannot_tell_is_unfit_and_says_why():
    found = measure(Bad())
    assert found.verdict is Fitness.UNFIT
    assert "chance" in found.signals[0].reasons[0]
    assert found.signals[0].threshold is None
    with pytest.warns(RuntimeWarning, match="chance"):
        found.config()


def test_few_questions_and_none_with_labels_are_not_enough():
    few = measure(examples=EXAMPLES[:6])
    assert few.verdict is Fitness.WEAK
    assert any("only 6 questions" in reason for reason in few.signals[0].reasons)
    bare = [LabelledExample(e.question, e.passages, ()) for e in EXAMPLES[:4]]
    signal = measure(examples=bare).signals[0]
    assert signal.verdict is Fitness.UNFIT
    assert signal.auc is None
    assert signal.threshold is None


def by_name_alone(context, scored):
    """Score of a passage about Anna, lower where it is about the question's."""
    number = "".join(filter(str.isdigit, scored))
    return -9.0 if "Anna" not in context else -2.0 if f"Anna{number} " in context else -1.0


def test_a_threshold_that_unrelated_passages_pass_makes_a_signal_weak():
    pairs = [("The tram was late.", f"Anna{n} rows.") for n in range(QUESTIONS)]
    examples = [LabelledExample(f"Who rows{n}?", pair, (1,)) for n, pair in enumerate(pairs)]
    signal = measure(FakeLanguageModel(by_name_alone), examples).signals[0]
    assert signal.auc.value == 1.0
    assert signal.verdict is Fitness.WEAK
    assert any("unrelated passages pass" in reason for reason in signal.reasons)


def test_a_configuration_takes_the_measured_threshold_and_other_settings():
    found = measure()
    config = found.config(top_k=3, ranker=None)
    assert config.threshold == found.signals[0].threshold.value
    assert (config.signal, config.top_k) == ("query_likelihood", 3)
    shaped = ContextShaper(good(), config).shape(EXAMPLES[3].question, EXAMPLES[3].passages)
    assert kept(shaped) == [1]


def test_signals_that_need_no_answer_are_not_told_it():
    model = good()
    measure(model, EXAMPLES[:3], ["query_likelihood", "drafted_joint_shift"])
    assert model.prompts  # drafted, although answers are known


def test_by_default_signals_that_need_an_answer_are_measured_only_where_there_are_answers():
    bare = [example(n, answer=False) for n in range(4)]
    without = measure(examples=bare, signals=None)
    answered = measure(examples=EXAMPLES[:4], signals=None)
    assert "answer_shift" not in [each.signal for each in without.signals]
    assert "answer_shift" in [each.signal for each in answered.signals]


def test_an_example_without_an_answer_is_named():
    with pytest.raises(InvalidInputError, match=r"answer_shift needs answers.*harbour1"):
        measure(examples=[example(0), example(1, answer=False)], signals=["answer_shift"])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["query_likelihood"] * 2,
        "query_likelihood",
    ],
)
def test_signals_are_a_list_of_different_ones(wrong):
    with pytest.raises(InvalidInputError):
        measure(signals=wrong)


def test_unrelated_passages_are_the_same_for_every_signal():
    found = measure(examples=EXAMPLES[:5], signals=["query_likelihood", "distribution_shift"])
    again = measure(examples=EXAMPLES[:5], signals=["query_likelihood"]).signals[0].unrelated
    assert found.signal("query_likelihood").unrelated == again
    assert found.signal("distribution_shift").unrelated > 0.0


def test_a_passage_that_cannot_be_scored_is_counted_and_left_out():
    long = LabelledExample("Who paints?", ("Anna paints.", "word " * 900), (0,))
    found = measure(FakeLanguageModel(by_overlap, max_tokens=120), [long, *EXAMPLES[:3]])
    assert found.signals[0].unscored == 0  # split into units, as the shaper does
    twice = LabelledExample("Who paints?", ("Anna paints.", "Anna paints."), (0,))
    assert measure(examples=[twice, *EXAMPLES[:3]]).signals[0].unscored == 1


def test_progress_counts_every_question_of_every_signal():
    told = []
    measure(
        examples=EXAMPLES[:3],
        signals=["query_likelihood", "distribution_shift"],
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(n, 6) for n in range(1, 7)]


def test_a_file_is_written_whole_read_back(tmp_path):
    found = measure(examples=EXAMPLES[:4])
    assert ModelDiagnostics.load(found.save(tmp_path / "d.json")) == found
    with pytest.raises(StorageError):
        ModelDiagnostics.load(tmp_path / "missing.json")


def broken(change):
    data = json.loads(measure(examples=EXAMPLES[:4]).to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "does not hold diagnostics"),
        (lambda d: d.update(version=99), "upgrade"),
        (lambda d: d.pop("model"), "model"),
        (lambda d: d.update(examples="four"), "examples: .* integer"),
        (lambda d: d["signals"][0].update(verdict="great"), "signals.0.verdict: .*'fit', 'weak'"),
        (lambda d: d["signals"][0]["auc"].update(low=None), "signals.0.auc.low"),
        (lambda d: d["signals"][0].update(tokens=float("nan")), "NaN"),
        (lambda d: d["signals"][0].update(reasons="x"), "signals.0.reasons"),
        (lambda d: d["signals"].clear(), "signals: .*at least 1"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(change, message):
    with pytest.raises(InvalidInputError, match=message):
        ModelDiagnostics.from_json(broken(change))


@pytest.mark.parametrize(
    "ask",
    [
        {"signal": "joint_shift"},
        {"no_such_setting": 1},
        {"pool_size": 0},
    ],
)
def test_an_unmeasured_configuration_is_refused(ask):
    with pytest.raises(ConfigurationError):
        measure(examples=EXAMPLES[:4]).config(**ask)


class OrderedOnly(QueryLikelihood):
    name = "ordered_only"

    def utilities(self, task, results):
        """Signal whose order differs from its utility."""
        ordered = super().utilities(task, results)
        utilities = []
        for text, unit in zip(task.passages, ordered, strict=True):
            by_chance = hash_of(text) % 1000 / 1000
            utilities.append(UnitUtility(by_chance, order_by=unit.utility))
        return utilities


def test_a_signal_whose_utility_is_chance_gets_no_threshold_however_well_it_orders():
    signal = measure(signals=[OrderedOnly()]).signals[0]
    assert signal.auc.value == 1.0
    assert signal.verdict is Fitness.WEAK
    assert signal.threshold is None
    assert any("its utility alone" in reason for reason in signal.reasons)


class Own(QueryLikelihood):
    name = "own"


def test_an_own_signal_is_measured_and_named_but_configured_by_its_object():
    found = measure(signals=[Own()])
    assert found.signals[0].signal == "own"
    with pytest.raises(ConfigurationError, match="pass the object"):
        found.config()


def test_examples_are_read_from_json_lines(tmp_path):
    path = tmp_path / "examples.jsonl"
    lines = [
        {"question": "Q?", "passages": ["a", "b"], "evidence": [1], "answer": "b"},
        {"question": "R?", "passages": ["c"], "evidence": []},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    first, second = LabelledExample.read(path)
    assert first == LabelledExample("Q?", ("a", "b"), (1,), ("b",))
    assert first.labels == (False, True)
    assert second.answers == ()
    assert LabelledExample.read(
        path,
        limit=1,
        seed=1,
    ) == LabelledExample.read(
        path,
        limit=1,
        seed=1,
    )
    with pytest.raises(InvalidInputError, match="limit"):
        LabelledExample.read(path, limit=0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no examples"),
        ("{", ":1: .*JSON"),
        ("[]", ":1: "),
        ('{"question": "Q?", "passages": ["a"]}', ":1: evidence"),
        ('{"question": "Q?", "passages": "a", "evidence": []}', "passages: .*array"),
        ('{"question": " ", "passages": ["a"], "evidence": []}', "needs a question"),
        ('{"question": "Q?", "passages": [" "], "evidence": []}', "blank"),
        ('{"question": "Q?", "passages": [], "evidence": []}', "no passages"),
        ('{"question": "Q?", "passages": ["a"], "evidence": [1]}', "indices"),
        ('{"question": "Q?", "passages": ["a"], "evidence": [true]}', "evidence"),
        ('{"question": "Q?", "passages": ["a"], "evidence": [0, 0]}', "repeats"),
        ('{"question": "Q?", "passages": ["a"], "evidence": [0], "answer": 3}', "answer"),
        ('{"question": "Q?", "passages": ["a"], "evidence": [0], "answer": [3]}', "answer"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused(tmp_path, line, message):
    path = tmp_path / "examples.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=message):
        LabelledExample.read(path)


def labels(*values):
    return np.array(values, dtype=bool)


def test_passages_compete_within_their_question_only():
    scores = np.array([1.0, 0.0, 11.0, 10.0, 5.0])
    questions = np.array([0, 0, 1, 1, 2])
    kinds = labels(True, False, True, False, True)
    estimate, number = question_auc(scores, kinds, questions)
    assert number == 2
    assert estimate == Estimate(1.0, 1.0, 1.0)


def test_questions_without_both_kinds_have_no_auc():
    scores = np.array([1.0, 0.0])
    questions = np.array([0, 1])
    assert question_auc(scores, labels(True, False), questions) == (None, 0)


def f1(scores, kinds, threshold):
    kept = scores >= threshold
    right = (kept & kinds).sum()
    return 2 * right / max(1, kept.sum() + kinds.sum())


def has_evidence(rows):
    return any(kind for _, kind in rows)


ROW = st.tuples(st.floats(-5, 5), st.booleans())
ROWS = st.lists(ROW, min_size=2, max_size=30)


@given(ROWS.filter(has_evidence))
def test_no_other_threshold_from_zero_on_has_a_better_f1(rows):
    scores = np.array([score for score, _ in rows])
    kinds = np.array([kind for _, kind in rows])
    chosen = best_threshold(scores, kinds)
    others = [0.0, *scores[scores >= 0.0]]
    best = max(f1(scores, kinds, threshold) for threshold in others)
    assert chosen >= 0.0
    assert f1(scores, kinds, chosen) == pytest.approx(best)


def test_a_held_out_threshold_of_separable_questions_is_perfect_and_of_noise_by_chance():
    questions = np.repeat(np.arange(10), 4)
    kinds = np.tile([True, False, False, False], 10)
    rng = np.random.default_rng(0)
    separable = kinds * 5.0 + rng.random(40)
    perfect = held_out_threshold(separable, kinds, questions)
    by_chance = held_out_threshold(rng.random(40), kinds, questions)
    assert perfect.precision == 1.0
    assert perfect.recall == 1.0
    assert by_chance.precision < 0.5


def test_a_single_question_holds_nothing_out_and_evidence_alone_has_no_threshold():
    scores = np.array([1.0, 0.0])
    one_question = np.array([0, 0])
    two_questions = np.array([0, 1])
    assert held_out_threshold(scores, labels(True, False), one_question) is None
    assert held_out_threshold(scores, labels(True, True), two_questions) is None
