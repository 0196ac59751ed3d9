import json

import pytest

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.frontier.data import CalibrationQuestion, Context, data_hash, read_questions
from ecs_plugins.frontier.metrics import exact_match, token_f1


def line(**changes):
    row = {"question": "Who?", "answer": "Ann", "documents": ["Ann did.", {"text": "Bob."}]}
    row |= changes
    for name, value in changes.items():
        if value is ...:
            del row[name]
    return json.dumps(row)


def write(tmp_path, text, name="data.jsonl"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_jsonl_with_texts_titles_answers_and_supporting(tmp_path):
    document = {"title": "T", "text": "x. y.", "sentences": ["x.", " y."]}
    short = line(id="a")
    full = line(
        answer=...,
        answers=["Ann", "Anna"],
        documents=[document, 1764],
        supporting=[0],
    )
    path = write(tmp_path, f"{short}\n\n{full}")
    first, second = read_questions(path)
    assert first.id == "a"
    assert second.id == "line 3"
    assert second.answers == ("Ann", "Anna")
    assert second.context.text == "T: x. y.\n\n1764"
    assert second.context.documents[0].sentences == ("x.", " y.")
    assert second.supporting == (0,)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line(answer=...), r"data\.jsonl:17: .*has no answer"),
        (line(documents=...), r"data\.jsonl:17: documents: Field required"),
        (line(documents="text"), r"data\.jsonl:17: documents: .*valid array"),
        (line(documents=[]), r"data\.jsonl:17: .*at least one document"),
        (line(documents=[{"title": "x"}]), r"data\.jsonl:17: documents\.0\.text: Field required"),
        (line(question=" "), r"data\.jsonl:17: .* is empty"),
        (line(answer=""), r"data\.jsonl:17: .*no answer"),
        (line(supporting=[7]), r"data\.jsonl:17: .*indices"),
        ('{"question": ', r"data\.jsonl:17: Invalid JSON"),
        ("[1]", r"data\.jsonl:17: .*object"),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(tmp_path, bad, message):
    lines = [line()] * 18
    lines[16] = bad
    path = write(tmp_path, "\n".join(lines))
    with pytest.raises(InvalidInputError, match=message):
        read_questions(path)


def test_missing_and_empty_files_and_repeated_ids_are_refused(tmp_path):
    with pytest.raises(StorageError, match="cannot read"):
        read_questions(tmp_path / "missing.json")
    empty = write(tmp_path, "\n", "empty.jsonl")
    with pytest.raises(InvalidInputError, match="no question"):
        read_questions(empty)
    repeated = "\n".join([line(id="a")] * 2)
    path = write(tmp_path, repeated)
    with pytest.raises(InvalidInputError, match="'a' occurs twice"):
        read_questions(path)


def test_a_sample_is_seeded_and_keeps_the_order(tmp_path):
    lines = [line(id=str(k)) for k in range(50)]
    path = write(tmp_path, "\n".join(lines))
    first = read_questions(path, limit=10)
    again = read_questions(path, limit=10)
    ids = [int(question.id) for question in first]
    assert first == again
    assert ids == sorted(ids)


def test_the_data_hash_sees_every_change():
    context = Context.of(["a"])
    other = Context.of(["b"])
    questions = [
        CalibrationQuestion("1", "q?", ("a",), context),
        CalibrationQuestion("2", "q?", ("a",), context),
        CalibrationQuestion("1", "r?", ("a",), context),
        CalibrationQuestion("1", "q?", ("b",), context),
        CalibrationQuestion("1", "q?", ("a",), other),
    ]
    hashes = {data_hash([question]) for question in questions}
    assert len(hashes) == 5


@pytest.mark.parametrize(
    ("prediction", "answers", "em", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1, 1),
        ("Paris, France", ["Paris"], 0, 2 / 3),
        ("yes", ["no"], 0, 0),
        ("yes it is", ["yes"], 0, 0),
        ("a cat", ["the cat", "dog"], 1, 1),
        ("", ["x"], 0, 0),
        ("new new york", ["new york"], 0, 0.8),
    ],
)
def test_answers_are_compared_as_hotpotqa_does(prediction, answers, em, f1):
    assert exact_match(prediction, answers) == em
    assert token_f1(prediction, answers) == pytest.approx(f1)
