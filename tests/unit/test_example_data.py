import json
import re
from collections import Counter
from datetime import date, timedelta
from itertools import chain
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


def content_words(text: str) -> set[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    def stems(words) -> set[str]:
        return {re.sub(r"(?<=\w{3})(ing|ed|es|s|e)$", "", word) for word in words}

    words = re.findall(r"[^\W_]+", text.lower().replace("'s", "").replace("'", ""))
    return stems(words) - stems({*ENGLISH_STOP_WORDS, "used", "nadia", "owen", "petra"})


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
def test_a_question_is_what_its_category_says_and_its_answer_stands_in_its_evidence(category):
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


@pytest.mark.parametrize("part", ["conversation", "documents"])
def test_word_matching_is_neither_favoured_nor_shut_out(part: str) -> None:
    for question in QUESTIONS[part]:
        asked = content_words(question["question"])
        shared = any(asked & content_words(TEXTS[key]) for key in evidence(question))
        assert question["overlap"] == ("some" if shared else "none"), question["id"]
    share = Counter(values("overlap", QUESTIONS[part]))
    assert 0.4 <= share["none"] / share.total() <= 0.6


def test_repeated_facts_are_told_in_sessions_and_near_duplicates_share_their_words() -> None:
    for fact in QUESTIONS["repeated_facts"]:
        assert len({key[:3] for key in fact["turns"]}) >= 3
    for group in QUESTIONS["near_duplicates"]:
        words = [content_words(TEXTS[key]) for key in group["turns"]]
        assert len(words) >= 2
        assert all(group["answer"] in TEXTS[key] for key in group["turns"])
        assert len(set.intersection(*words)) / len(set(chain(*words))) > 0.8
