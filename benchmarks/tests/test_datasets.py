import json

import pytest

from benchmarks.datasets.contexts import read_contexts
from benchmarks.datasets.evidence import read_dataset
from benchmarks.tests.records import (
    HOTPOTQA,
    HOTPOTQA_ROW,
    LOCOMO,
    MUSIQUE,
    SQUAD,
    SQUAD_ROWS,
    save,
    save_lines,
)
from ecs_plugins.errors import InvalidInputError, StorageError


def evidence_texts(question):
    return [question.units[index] for index in question.evidence]


def test_locomo_turns_stand_in_the_order_of_sessions_with_date_and_speaker(tmp_path):
    first, _ = read_dataset("locomo", save(tmp_path / "d.json", LOCOMO))
    assert first.units == (
        "(1 May) Ana: I bought a red boat.",
        "(1 May) Ben: The weather is fine.",
        "(4 May) Ben: I sold the red boat.",
    )
    assert (first.id, first.group, first.category) == ("conv-1/0", "conv-1", "single-hop")


def test_locomo_resolves_several_ids_in_one_string_and_skips_unknown_ones(tmp_path):
    _, second = read_dataset("locomo", save(tmp_path / "d.json", LOCOMO))
    assert second.evidence == (0, 2)
    assert second.answers == ("7",)


def test_hotpotqa_counts_supporting_sentences_by_title_and_number_despite_blank_ones(tmp_path):
    (question,) = read_dataset("hotpotqa", save(tmp_path / "d.json", HOTPOTQA))
    assert evidence_texts(question) == [
        "Bell: The bell was made by Liv Dahl.",
        "Maker: She was born in Oslo.",
    ]
    assert len(question.units) == 5


def test_musique_sentences_are_those_with_the_answer_of_their_hop(tmp_path):
    (question,) = read_dataset("musique", save(tmp_path / "d.json", MUSIQUE))
    assert evidence_texts(question)[0] == "Bell: The bell was made by Liv Dahl."
    assert question.category == "2-hop"
    assert question.answers == ("Oslo", "Kristiania")


def test_musique_falls_back_to_the_whole_paragraph_where_its_answer_is_worded_otherwise(tmp_path):
    (question,) = read_dataset("musique", save(tmp_path / "d.json", MUSIQUE))
    assert evidence_texts(question)[1:] == [
        "Maker: She was born in Oslo.",
        "Maker: She died young.",
    ]


def test_squad_counts_sentences_of_the_questions_own_paragraph_only(tmp_path):
    first, second = read_dataset("squad", save(tmp_path / "d.json", SQUAD))
    assert evidence_texts(first) == ["The Vega was built in Bergen."]
    assert evidence_texts(second) == ["The Sirius was built in Hamburg."]
    assert len(first.units) == 4
    assert first.answers == ("Bergen",)


def test_a_line_that_is_not_json_is_named_with_its_number(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps(MUSIQUE[0]) + "\n\n{broken\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"d\.jsonl:3 is not valid JSON"):
        read_dataset("musique", path)


def test_a_record_without_a_field_is_named_with_its_number(tmp_path):
    path = save(tmp_path / "d.json", [HOTPOTQA[0], {"question": "?"}])
    with pytest.raises(InvalidInputError, match="record 2: no '_id'"):
        read_dataset("hotpotqa", path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"3", "holds no list of records"),
        (b"[]", "no question with an answer and evidence"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, content, message):
    path = tmp_path / "d.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_dataset("squad", path)


def test_a_missing_file_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="cannot read"):
        read_dataset("squad", tmp_path / "none.json")


def test_hotpotqa_rows_of_the_hub_are_read_like_the_published_file(tmp_path):
    path = save_lines(tmp_path / "d.jsonl", [HOTPOTQA_ROW])
    (evidence,) = read_dataset("hotpotqa", path)
    assert (evidence.id, evidence.evidence) == ("h1", (0, 2))
    (question,) = read_contexts("hotpotqa", path)
    assert (question.id, question.supporting) == ("h1", (0, 1))


def test_squad_rows_of_the_hub_are_articles_again(tmp_path):
    path = save_lines(tmp_path / "d.jsonl", SQUAD_ROWS)
    evidence = read_dataset("squad", path)
    assert [q.evidence for q in evidence] == [(0,), (0,), (1,), (1,)]
    assert {len(q.units) for q in evidence} == {2}
    questions = read_contexts("squad", path)
    assert len({q.context.id for q in questions}) == 1
    assert [q.supporting for q in questions] == [(0,), (0,), (1,), (1,)]


@pytest.mark.parametrize("missing", ["title", "id"])
def test_an_incomplete_row_is_named(tmp_path, missing):
    broken = {key: value for key, value in SQUAD_ROWS[1].items() if key != missing}
    path = save_lines(tmp_path / "d.jsonl", [SQUAD_ROWS[0], broken])
    for read in (lambda: read_dataset("squad", path), lambda: read_contexts("squad", path)):
        with pytest.raises(InvalidInputError, match=f"record 2 is incomplete.*{missing}"):
            read()


def read_context(name, path, data):
    return read_contexts(name, save(path / "d.json", data))


def test_a_hotpotqa_context_keeps_its_sentences(tmp_path):
    (question,) = read_context("hotpotqa", tmp_path, HOTPOTQA)
    assert question.supporting == (0, 1)
    assert question.context.documents[1].sentences == (
        "Liv Dahl makes bells.",
        " She was born in Oslo.",
    )
    assert question.context.documents[1].text == "Liv Dahl makes bells. She was born in Oslo."


def test_a_musique_context_has_aliases_and_leaves_the_unanswerable_out(tmp_path):
    (question,) = read_context("musique", tmp_path, MUSIQUE)
    assert (question.answers, question.supporting) == (("Oslo", "Kristiania"), (0, 2))


def test_squad_questions_of_an_article_share_its_context(tmp_path):
    first, _, third = read_context("squad", tmp_path, SQUAD)
    assert first.context is third.context
    assert (first.answers, third.supporting) == (("Bergen",), (1,))
