import json
from datetime import date, timedelta
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "examples" / "data"
CONVERSATION = json.loads((DATA / "conversation.json").read_text(encoding="utf-8"))
DOCUMENTS = json.loads((DATA / "documents.json").read_text(encoding="utf-8"))["documents"]
QUESTIONS = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))

SESSIONS = CONVERSATION["sessions"]
TURNS = {turn["id"]: turn for session in SESSIONS for turn in session["turns"]}
TEXTS = {key: turn["text"] for key, turn in TURNS.items()} | {
    document["id"]: f"{document['title']}\n{document['text']}" for document in DOCUMENTS
}
ALL = QUESTIONS["conversation"] + QUESTIONS["documents"]


def evidence(question: dict) -> list[str]:
    return question.get("evidence") or question["documents"]


def misled(question: dict) -> list[tuple[str, str]]:
    hits = question.get("misleading", [])
    return [(hit.get("turn") or hit["document"], hit["answer"]) for hit in hits]


def values(key: str, of: list[dict]) -> list[str]:
    return [each[key] for each in of]


def test_the_conversation_is_long_and_dated_and_its_ids_say_session_and_position() -> None:
    days = values("date", SESSIONS)
    assert 220 <= len(TURNS) <= 260
    assert len(SESSIONS) >= 10
    assert days == sorted(set(days))
    assert list(TURNS) == [
        f"s{s:02d}t{t:02d}"
        for s, session in enumerate(SESSIONS, 1)
        for t, _ in enumerate(session["turns"], 1)
    ]
    assert set(values("speaker", TURNS.values())) == set(CONVERSATION["speakers"])
    assert all(text == text.strip() and text for text in TEXTS.values())
    for told in (values("id", ALL), values("question", ALL), values("id", DOCUMENTS)):
        assert len(set(told)) == len(told)


@pytest.mark.parametrize("category", sorted(set(values("category", ALL))))
def test_questions_fit_their_category_and_evidence(category):
    for question in ALL:
        if question["category"] != category:
            continue
        named = [*evidence(question), *(key for key, _ in misled(question))]
        assert set(named) <= set(TEXTS), question
        assert len(set(named)) == len(named), question
        parts = question.get("answer_parts", [question["answer"]])
        if category == "temporal":
            (turn,) = question["evidence"]
            said = date.fromisoformat(SESSIONS[int(turn[1:3]) - 1]["date"])
            day = said + timedelta(days=question["offset_days"])
            assert question["answer_date"] == day.isoformat(), question
            assert question["answer"] == f"{day.day} {day:%B} {day.year}", question
        else:
            found = " ".join(TEXTS[key] for key in evidence(question)).lower()
            assert all(part.lower() in found for part in parts), question
        if category == "multi-hop":
            assert len(evidence(question)) >= 2, question
            assert all(part.lower() in question["answer"].lower() for part in parts), question
        if category in ("changed-fact", "false-statement"):
            assert misled(question), question
            for key, wrong in misled(question):
                assert wrong.lower() in TEXTS[key].lower(), question
                assert question["answer"].lower() != wrong.lower(), question
                assert "documents" in question or max(evidence(question)) > key, question
