import json

import pytest

from ecs_plugins.shaping import ModelDiagnostics


@pytest.fixture
def data(tmp_path):
    def write(questions, **more):
        path = tmp_path / "examples.jsonl"
        rows = [
            {
                "question": f"Who paints{n} boats{n} near harbour{n}?",
                "passages": [f"The tram {n} was late.", f"Anna{n} paints{n} boats{n}."],
                "evidence": [1],
                **more,
            }
            for n in range(questions)
        ]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return path

    return write


def test_a_verdict_and_the_reasons_are_shown(run, data):
    status, out, err = run(
        "diagnose", "--data", data(5), "--signals", "query_likelihood,trajectory_shift"
    )
    assert status == 0, err
    assert "fake is weak for context shaping, at best with" in out
    assert "query_likelihood" in out
    assert "trajectory_shift" in out
    assert "only 5 questions" in out


def test_diagnostics_of_a_sample_are_written_and_json_alone_goes_to_standard_output(
    run, data, tmp_path
):
    file = tmp_path / "diagnostics.json"
    options = ("--signals", "query_likelihood", "--limit", "3", "--out", file)
    command = ("diagnose", "--data", data(9), *options)
    status, out, err = run(*command, "--json")
    assert status == 0, err
    found = ModelDiagnostics.load(file)
    assert (found.model, found.examples) == ("fake", 3)
    assert found.signals[0].probability is not None
    assert ModelDiagnostics.from_json(out) == found
    assert str(file) in run(*command)[1]


def test_all_signals_without_answers_are_those_that_need_none(run, data):
    status, out, err = run("diagnose", "--data", data(2), "--signals", "all", "--json")
    assert status == 0, err
    names = {signal.signal for signal in ModelDiagnostics.from_json(out).signals}
    assert names & {"query_likelihood", "answer_shift"} == {"query_likelihood"}


@pytest.mark.parametrize(
    ("questions", "options", "message"),
    [
        (3, ("--signals", "truth"), "choose from"),
        (3, ("--signals", " , "), "choose from"),
        (1, (), "at least two"),
        (3, ("--signals", "answer_shift"), "needs answers"),
    ],
)
def test_bad_input_ends_in_one_line_before_anything_is_measured(
    run, data, questions, options, message
):
    status, out, err = run("diagnose", "--data", data(questions), *options)
    assert (status, out) == (1, "")
    assert message in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("ecs-plugins: ")
