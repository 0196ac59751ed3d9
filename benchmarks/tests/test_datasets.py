import json

import pytest

from benchmarks.datasets.contexts import CONTEXTS, read_contexts
from benchmarks.datasets.evidence import NQ_PASSAGES, read_dataset
from benchmarks.tests.records import (
    HOTPOTQA,
    HOTPOTQA_ROW,
    LOCOMO,
    LONGMEMEVAL,
    MUSIQUE,
    SQUAD,
    SQUAD_ROWS,
    nq,
    save,
    save_lines,
)
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.frontier.data import read_questions


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


@pytest.mark.parametrize(
    ("unit", "count", "evidence"),
    [
        ("text", 3, ["I bought a red boat.", "I sold the red boat."]),
        (
            "exchange",
            3,
            ["(1 May) Ana: I bought a red boat.", "(4 May) Ben: I sold the red boat."],
        ),
        (
            "session",
            2,
            [
                "(1 May)\nAna: I bought a red boat.\nBen: The weather is fine.",
                "(4 May)\nBen: I sold the red boat.",
            ],
        ),
    ],
)
def test_locomo_units_may_be_smaller_or_larger(tmp_path, unit, count, evidence):
    _, second = read_dataset("locomo", save(tmp_path / "d.json", LOCOMO), unit=unit)
    assert len(second.units) == count
    assert evidence_texts(second) == evidence


def test_longmemeval_turns_are_those_marked_or_else_all_of_the_session(tmp_path):
    path = save(tmp_path / "d.json", LONGMEMEVAL)
    first, second = read_dataset("longmemeval", path, unit="turn")
    assert evidence_texts(first) == ["(1 May) user: My dog is called Rex."]
    assert second.evidence == (2, 3)


def test_hotpotqa_counts_supporting_sentences_by_title_and_number_despite_blank_ones(tmp_path):
    (question,) = read_dataset("hotpotqa", save(tmp_path / "d.json", HOTPOTQA))
    assert evidence_texts(question) == [
        "Bell: The bell was made by Liv Dahl.",
        "Maker: She was born in Oslo.",
    ]
    assert question.hops == ("Bell", "Maker")
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
    assert question.hops == ("0", "2", "2")


def test_musique_paragraphs_are_those_labelled(tmp_path):
    (question,) = read_dataset("musique", save(tmp_path / "d.json", MUSIQUE), unit="paragraph")
    assert (len(question.units), question.evidence) == (3, (0, 2))


def test_squad_counts_sentences_of_the_questions_own_paragraph_only(tmp_path):
    first, second = read_dataset("squad", save(tmp_path / "d.json", SQUAD))
    assert evidence_texts(first) == ["The Vega was built in Bergen."]
    assert evidence_texts(second) == ["The Sirius was built in Hamburg."]
    assert len(first.units) == 4
    assert first.answers == ("Bergen",)


def test_nq_puts_the_gold_passage_among_nineteen_that_hold_no_answer(tmp_path):
    questions = read_dataset("nq", save(tmp_path / "d.json", nq()))
    for question in questions:
        assert len(question.units) == NQ_PASSAGES
        holding = [i for i, u in enumerate(question.units) if question.answers[0] in u.lower()]
        assert tuple(holding) == question.evidence


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
    assert (evidence.id, evidence.evidence, evidence.hops) == ("h1", (0, 2), ("Bell", "Maker"))
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


def test_locomo_sessions_are_in_order_and_unanswerable_questions_left_out(tmp_path):
    first, second, third = read_context("locomo", tmp_path, LOCOMO)
    assert [d.title for d in first.context.documents] == ["1 May", "4 May"]
    assert first.context.documents[1].text == "Ben: I sold the red boat.\n"
    assert (second.answers, second.supporting, third.supporting) == (("7",), (0, 1), ())


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_calibration_reads_the_questions_of_a_file(bench, tmp_path, name):
    data = {"hotpotqa": HOTPOTQA, "musique": MUSIQUE, "squad": SQUAD, "locomo": LOCOMO}[name]
    file, out = save(tmp_path / "d.json", data), tmp_path / "new" / "q.jsonl"
    bench("questions", name, "--data", file, "--out", out)
    assert read_questions(out) == read_contexts(name, file)


def test_a_sample_of_questions_is_that_of_the_calibration(bench, tmp_path):
    rows = [HOTPOTQA[0] | {"_id": f"h{n}"} for n in range(40)]
    file, out = save(tmp_path / "d.json", rows), tmp_path / "q.jsonl"
    bench("questions", "hotpotqa", "--data", file, "--out", out)
    sample = read_questions(out, limit=10)
    bench("questions", "hotpotqa", "--data", file, "--out", out, "--limit", "10")
    assert read_questions(out) == sample
    bench("questions", "hotpotqa", "--data", file, "--out", out, "--contexts", "1")
    assert len(read_questions(out)) == 40
