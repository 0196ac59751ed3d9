import json

import pytest

from benchmarks.evidence.readers import NQ_PASSAGES, UNITS, read_dataset
from ecs_plugins.errors import InvalidInputError, StorageError

from .records import HOTPOTQA, LOCOMO, LONGMEMEVAL, MUSIQUE, SQUAD, nq, save


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


def test_locomo_leaves_out_what_was_never_said_and_what_cannot_be_resolved(tmp_path):
    questions = read_dataset("locomo", save(tmp_path / "d.json", LOCOMO))
    assert [q.question for q in questions] == ["Who bought a boat?", "Who sold and bought it?"]


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


def test_an_exchange_stays_within_its_session(tmp_path):
    first, _ = read_dataset("locomo", save(tmp_path / "d.json", LOCOMO), unit="exchange")
    assert first.units[1] == "(1 May) Ana: I bought a red boat.\n(1 May) Ben: The weather is fine."
    assert first.units[2] == "(4 May) Ben: I sold the red boat."


def test_longmemeval_ranks_whole_sessions(tmp_path):
    first, second = read_dataset("longmemeval", save(tmp_path / "d.json", LONGMEMEVAL))
    assert first.units[0] == "(1 May)\nuser: My dog is called Rex.\nassistant: Nice."
    assert (first.evidence, second.evidence) == ((0,), (1,))


def test_longmemeval_turns_are_those_marked_or_else_all_of_the_session(tmp_path):
    path = save(tmp_path / "d.json", LONGMEMEVAL)
    first, second = read_dataset("longmemeval", path, unit="turn")
    assert evidence_texts(first) == ["(1 May) user: My dog is called Rex."]
    assert second.evidence == (2, 3)


def test_longmemeval_reads_the_published_form_with_one_question_per_haystack(tmp_path):
    haystack = {k: v for k, v in LONGMEMEVAL[0].items() if k != "questions"}
    record = {**haystack, **LONGMEMEVAL[0]["questions"][0]}
    (question,) = read_dataset("longmemeval", save(tmp_path / "d.json", [record]))
    assert (question.id, question.evidence) == ("q1", (0,))


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


def test_musique_as_published_is_json_lines(tmp_path):
    path = tmp_path / "musique.jsonl"
    path.write_text("\n".join(map(json.dumps, MUSIQUE)) + "\n", encoding="utf-8")
    assert [q.id for q in read_dataset("musique", path)] == ["2hop__1_2"]


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


def test_nq_leaves_out_other_passages_of_the_same_page(tmp_path):
    questions = read_dataset("nq", save(tmp_path / "d.json", nq()))
    page = questions[-2]
    assert sum(unit.startswith("Title 0:") for unit in page.units) == 1


def test_nq_draws_the_same_passages_from_the_same_seed_only(tmp_path):
    path = save(tmp_path / "d.json", nq())
    assert read_dataset("nq", path) == read_dataset("nq", path)
    assert read_dataset("nq", path) != read_dataset("nq", path, seed=1)


def test_a_line_that_is_not_json_is_named_with_its_number(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps(MUSIQUE[0]) + "\n\n{broken\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"d\.jsonl:3 is not valid JSON"):
        read_dataset("musique", path)


def test_a_record_without_a_field_is_named_with_its_number(tmp_path):
    path = save(tmp_path / "d.json", [HOTPOTQA[0], {"question": "?"}])
    with pytest.raises(InvalidInputError, match="record 2: no '_id'"):
        read_dataset("hotpotqa", path)


def test_a_record_of_another_shape_is_named_with_its_number(tmp_path):
    path = save(tmp_path / "d.json", [HOTPOTQA[0], {**HOTPOTQA[0], "_id": "h2", "context": [1]}])
    with pytest.raises(InvalidInputError, match="record 2 does not look like hotpotqa"):
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


def test_unknown_data_sets_and_units_name_the_known_ones(tmp_path):
    with pytest.raises(InvalidInputError, match="locomo"):
        read_dataset("trivia", tmp_path)
    with pytest.raises(InvalidInputError, match="sentence, paragraph"):
        read_dataset("musique", tmp_path, unit="word")


def test_every_data_set_has_a_unit():
    assert all(UNITS.values())
