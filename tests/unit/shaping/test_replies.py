"""Passages with the question and its reply."""

import pytest

from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.sentences import pieces_of
from ecs_plugins.shaping.spans import join_spans

QUESTION = "When does the ferry leave?"
REPLY = "at 7:40 from the east pier"

NAMES = f"""
Ana: The weather was fine all week.
Ana: {QUESTION}
Ben: {REPLY}
Ana: I wash the dishes then.
"""
STAMPED = f"[10:01] Ana: {QUESTION}\n[10:02] Ben: {REPLY}\n[10:03] Ana: I wash the dishes.\n"
WHATSAPP = f"""
12/05/2024, 10:01 - Ana: {QUESTION}
12/05/2024, 10:02 - Ben: {REPLY}
12/05/2024, 10:03 - Ana: I wash the dishes then.
"""
NICKS = f"<ana> {QUESTION}\n<ben> {REPLY}\n<ana> I wash the dishes then.\n"
Q_AND_A = f"Q: {QUESTION}\n\nA: {REPLY}\n\nQ: Who cooks tonight?\n\nA: Cy, with Dora\n"
BOLD = f"**Q:** {QUESTION}\n\n**A:** {REPLY}\n\n**Q:** Who cooks?\n\n**A:** Cy, with Dora\n"
HEADINGS = f"## {QUESTION}\n\n{REPLY}\n\n## Who cooks tonight?\n\nCy, with Dora.\n"
PARAGRAPHS = f"**{QUESTION}**\n\n{REPLY}\n\n**Who cooks tonight?**\n\nCy, with Dora.\n"
ASKED_TWICE = f"Ana: {QUESTION}\nAna: Anyone?\nBen: {REPLY}\nAna: I wash the dishes then.\n"

CHATS = {
    "names": NAMES,
    "stamped": STAMPED,
    "WhatsApp": WHATSAPP,
    "nicks": NICKS,
    "Q and A": Q_AND_A,
    "bold": BOLD,
    "headings": HEADINGS,
    "paragraphs": PARAGRAPHS,
    "asked twice": ASKED_TWICE,
}


def shaped(question, passage, known, *, share=0.7):
    """Return the kept passages if the question is likely after itself and ``known``."""

    def logprob(context, text):
        holds = [part in context for part in (question, known)]
        return -4.0 + sum(holds)

    config = ShapingConfig(
        unit="sentence", keep_share=share, signal="query_likelihood", ranker=None
    )
    return ContextShaper(FakeLanguageModel(logprob), config).shape(question, [passage]).text


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_a_reply_to_the_question_that_was_asked_stays_together_with_it(chat):
    left = shaped(QUESTION, chat, REPLY)
    assert QUESTION in left
    assert REPLY in left
    assert len(left) < len(chat.strip())


@pytest.mark.parametrize(
    ("question", "reply", "chat"),
    [
        (
            "渡轮什么时候开？",
            "七点四十从东码头",
            "小明：昨天天气很好。\n小红：渡轮什么时候开？\n小明：七点四十从东码头\n小红：我洗碗。\n",
        ),
        (
            "متى تغادر العبارة؟",
            "في السابعة من الرصيف الشرقي",
            "عمر: كان الطقس جميلا.\nسارة: متى تغادر العبارة؟\nعمر: في السابعة من الرصيف الشرقي\n"
            "سارة: شكرا جزيلا لك يا صديقي.\n",
        ),
        (
            "Когда отходит паром?",
            "в 7:40 от восточного причала",
            "Вопрос: Когда отходит паром?\nОтвет: в 7:40 от восточного причала\n"
            "Вопрос: Кто сегодня готовит?\nОтвет: Дора, вместе с Кириллом\n",
        ),
    ],
)
def test_a_reply_stays_with_its_question_in_other_scripts(question, reply, chat):
    left = shaped(question, chat, reply)
    assert question in left
    assert reply in left
    assert len(left) < len(chat.strip())


def test_a_turn_that_repeats_the_question_is_read_without_it():
    chat = f"Ana: {QUESTION}\nBen: {QUESTION}\nAna: Nobody here knows that, I fear.\n"
    model = FakeLanguageModel()
    config = ShapingConfig(unit="sentence", keep_share=0.3, signal="query_likelihood", ranker=None)
    ContextShaper(model, config).shape(QUESTION, [chat])
    read = {
        segment.text
        for request in model.requests
        for each in request.candidates
        for segment in each
    }
    with_question = [text for text in read if QUESTION in text]
    assert with_question
    for text in with_question:
        assert "Nobody here knows" in text


def test_a_timetable_is_no_chat():
    timetable = "Naxos  7:40\nParos  8:15\nSyros  9:30\n"
    pieces = pieces_of(timetable)
    assert not any(piece.answers for piece in pieces)
    assert (
        join_spans([(piece.start, piece.end) for piece in pieces if piece.said], timetable)
        == timetable
    )


def test_fields_behind_a_title_that_asks_do_not_reply_to_it():
    fields = "Title: Why did Rome fall so late?\nAuthor: Smith\nYear: 1999\n"
    assert not any(piece.answers for piece in pieces_of(fields))
