import json
from pathlib import Path

import pytest

from ecs_plugins.shaping.config import ShapingConfig

FERRY = "The ferry leaves at nine."
GULLS = "Gulls nest on the roof."
QUESTION = "When does the ferry leave?"


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def asked(source: str, *more: str) -> tuple[str, ...]:
    """The command that asks the question about the passages of a file."""
    return ("shape", "-q", QUESTION, "-p", source, *more)


def shaped(run, source: str, *more: str, stdin: bytes = b"") -> dict:
    command = asked(source, "--ranker", "none", "--json", *more)
    status, out, err = run(*command, stdin=stdin)
    assert status == 0, err
    return json.loads(out)


def test_json_has_kept_passages_and_all_verdicts(run, tmp_path) -> None:
    records = [json.dumps({"text": text}) for text in (GULLS, FERRY)]
    path = write(tmp_path / "notes.jsonl", "\n".join(records))
    result = shaped(run, path, "--top-k", "1")
    assert result["kept"] == [1]
    gulls, ferry = result["passages"]
    assert gulls["index"] == 0
    assert ferry["index"] == 1
    assert ferry["verdict"] == "selected"
    assert ferry["utility"] > gulls["utility"]
    assert result["tokens"]["after"] < result["tokens"]["before"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (f"{GULLS}\n{FERRY}\n", [GULLS, FERRY]),
        (json.dumps({"page_content": FERRY}), [FERRY]),
        (json.dumps([{"text": GULLS}, FERRY], indent=1), [GULLS, FERRY]),
        (f"\ufeff{GULLS}\r\n{FERRY}\r\n", [GULLS, FERRY]),
        (f"One.\nTwo.\n\n \n{FERRY}\n", ["One.\nTwo.", FERRY]),
    ],
)
@pytest.mark.parametrize("name", ["notes", "-"])
def test_files_without_extension_are_read_by_content(run, tmp_path, name, given, found) -> None:
    source = name if name == "-" else write(tmp_path / name, given)
    result = shaped(run, source, stdin=given.encode())
    assert [passage["text"] for passage in result["passages"]] == found


def test_the_model_is_made_as_the_options_say_and_not_before_the_signal_is_checked(
    run, made, tmp_path
) -> None:
    path = write(tmp_path / "notes.txt", FERRY)
    status, _, err = run(*asked(path, "--signal", "answer_shift"))
    assert status == 1
    assert made == []
    assert "needs an answer" in err
    shaped(run, path, "--dtype", "bfloat16", "--device", "cpu")
    assert made == [{"dtype": "bfloat16", "device": "cpu"}]


def test_a_known_answer_changes_the_signal(run, tmp_path) -> None:
    path = write(tmp_path / "notes.txt", f"{GULLS}\n{FERRY}\n")
    assert shaped(run, path)["signal"] == "query_likelihood+bm25+dense"
    result = shaped(run, path, "--answer", "at nine", "--answer", "9:00")
    assert result["signal"] == "joint_shift+bm25"
    assert result["kept"] == [1]


def test_threshold_and_token_budget_limit_kept_passages(run, tmp_path) -> None:
    path = write(tmp_path / "notes.txt", f"{GULLS}\n{FERRY}\n")
    answered = shaped(run, path, "--answer", "at nine", "--threshold", "99")
    assert answered["kept"] == []
    status, _, err = run(*asked(path, "--threshold", "99"))
    assert status != 0
    assert "min_probability" in err
    assert shaped(run, path, "--max-tokens", "7")["tokens"]["after"] <= 7


def test_the_table_shows_the_passages(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # a narrow terminal shows their beginnings only
    path = write(tmp_path / "notes.txt", f"{GULLS}\n{FERRY}\n")
    status, out, _ = run(*asked(path, "--ranker", "none", "--top-k", "1"))
    assert status == 0
    assert FERRY in out
    assert "1 of 2 passages kept" in out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", "", "holds no passages"),
        ("a.txt", " \n\n", "holds no passages"),
        ("a.txt", b"good\nb\xe9d\n", "line 2: not UTF-8"),
        ("a.jsonl", '{"text": "x"}\n' * 16 + "{oops}\n", "line 17: not JSON"),
        ("a.jsonl", '{"text": "x"}\n\n{"title": "x"}', "line 3: a record is a text"),
        ("a.jsonl", '{"text": 5}', "a record is a text"),
        ("a.jsonl", '["x"]\n["y"]', "line 1: a record is a text"),
        ("a.json", '[{"text": "x"}, {"title": "y"}]', "record 2: a record is a text"),
        ("a.json", '[{"text": "x"},', "line 1: not JSON"),
        ("a.jsonl", "[" * 100_000, "line 1: not JSON"),
    ],
)
def test_bad_input_is_one_clear_line_and_a_failure(run, tmp_path, name, content, said) -> None:
    path = write(tmp_path / name, content)
    status, out, err = run(*asked(path))
    assert status == 1
    assert out == ""
    assert said in err
    assert path in err
    assert err.count("\n") == 1


def test_a_missing_file_a_folder_and_an_empty_pipe_are_refused(run, tmp_path) -> None:
    sources = {tmp_path / "no.txt": "No such file", tmp_path: "read"}
    for source, said in sources.items():
        status, out, err = run(*asked(str(source)))
        assert status == 1
        assert out == ""
        assert err.count("\n") == 1
        assert said in err
    status, _, err = run(*asked("-"), stdin=b"")
    assert status == 1
    assert "- holds no passages" in err


@pytest.mark.parametrize(
    "options",
    [
        ("--query", " "),
        ("--query", QUESTION, "--answer", ""),
        ("--query", QUESTION, "--top-k", "0"),
        ("--query", QUESTION, "--signal", "joint_shift"),
        ("--query", QUESTION, "--signal", "nonsense"),
        ("--query", QUESTION, "--ranker", "nonsense"),
    ],
)
def test_a_bad_option_is_one_clear_line_and_a_failure(run, tmp_path, options) -> None:
    path = write(tmp_path / "notes.txt", FERRY)
    status, out, err = run("shape", "--passages", path, *options)
    assert status == 1
    assert out == ""
    assert err.count("\n") == 1


def test_the_help_names_every_setting(run):
    _, shown, _ = run("shape", "--help")
    for name in ShapingConfig.model_fields:
        assert f"--{name.replace('_', '-')}: " in shown


def test_an_unknown_option_is_refused_with_the_nearest_name(run, tmp_path):
    path = write(tmp_path / "notes.txt", FERRY)
    status, _, err = run(*asked(path, "--top-n", "1"))
    assert status == 1
    assert "did you mean top_k?" in err
