import random

import pytest

from ecs_plugins.common.text import as_replies, as_replies_to, is_conversation
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig

DATES = ("(3 May 2021)", "(9 May 2021)", "(2 June 2021)")
SAID = (
    "Ana: We are back from the lake. What have you been up to?",
    "Ben: I took the kids to the old fort. Have you been?",
    "Ana: Not yet! What did they make of it?",
    "Ben: They were awestruck.",
)
CHAT = [f"{date} {turn}" for date in DATES for turn in SAID]
DAYS = [f"({day} May) {turn}" for day in range(10) for turn in SAID]


def test_a_question_at_the_end_of_a_turn_is_read_with_the_reply_to_it():
    assert as_replies(SAID) == [
        "Ana: We are back from the lake.",
        "Ben: What have you been up to? I took the kids to the old fort.",
        "Ana: Have you been? Not yet!",
        "Ben: What did they make of it? They were awestruck.",
    ]


@pytest.mark.parametrize(
    ("turns", "read"),
    [
        (["[9:30] Ana: How was it?", "[9:30] Ben: Hot."], "[9:30] Ben: How was it? Hot."),
        (["Ana: How was it? I heard it rained.", "Ben: It did."], "Ben: It did."),
        ([f"({n} May) {turn}" for n, turn in enumerate(SAID)],
         "(3 May) Ben: What did they make of it? They were awestruck."),
    ],
    ids=["behind the speaker", "from the end only", "over single dates"],
)  # fmt: skip
def test_a_question_moves_to_the_reply_of_another_speaker(turns, read):
    assert as_replies(turns)[-1] == read


@pytest.mark.parametrize("mark", ["?", "?!", "？", "؟", "? 😊", "?)"])
def test_question_marks_of_several_scripts_end_a_question(mark):
    read = as_replies([f"Ana: It is late. Coffee{mark}", "Ben: Tea."])
    assert read == ["Ana: It is late.", f"Ben: Coffee{mark} Tea."]


@pytest.mark.parametrize(
    "turns",
    [
        ["Ana: Anyone there?"],
        ["Ana: Anyone there?", "A note without a speaker.", "Ben: Yes."],
        ["(1 May) Ana: Hi.", "(1 May) Ben: How are you?", "(2 May) Ana: So.", "(2 May) Ben: A"],
        ["(Monday) Ana: Shall we?", "(Monday) Ana: Never mind.", "(Friday) Ben: Hi.",
         "(Friday) Ana: Hi."],
        [f"Ana: Where can I {'walk my two dogs ' * 8}in Rome?", "Ben: By the river."],
    ],
)  # fmt: skip
def test_a_question_without_a_reply_or_a_long_one_stays_where_it_was_asked(turns):
    assert as_replies(turns) == turns


@pytest.mark.parametrize(
    "passages",
    [CHAT, SAID * 3, [*CHAT, ""], [*SAID * 4, "They laugh."]],
    ids=["dated", "without dates", "with a blank", "mostly turns"],
)
def test_a_chat_in_order_is_a_conversation(passages):
    assert is_conversation(passages)


@pytest.mark.parametrize(
    "passages",
    [
        [],
        CHAT[:11],
        [f"Title {n}: A sentence." for n in range(20)],
        ["Rome: A sentence.", "Rome: Another."] * 3 + ["Oslo: One.", "Oslo: Two."] * 3,
        ["Ana: I talk to myself."] * 12,
        ["It rained all day. Then it stopped."] * 12,
        ["user: Hi.\nassistant: Hello!", "assistant: Hello!\nuser: Bye."] * 6,
        CHAT[::2] + CHAT[1::2],
        [*SAID * 4, *["They laugh."] * 3],
        random.Random(42).sample(DAYS, len(DAYS)),
    ],
    ids=["none", "few", "titles", "pages", "one", "prose", "exchanges", "speaker by speaker",
         "hardly turns", "shuffled"],
)  # fmt: skip
def test_other_lists_are_no_conversation(passages):
    assert not is_conversation(passages)


def asked_of(model):
    return ["".join(s.text for s in c) for r in model.requests for c in r.candidates]


def test_the_shaper_reads_replies_and_returns_turns():
    model = FakeLanguageModel(lambda context, scored: -1.0 + context.count("make of it"))
    config = ShapingConfig(top_k=1, signal="query_likelihood")
    shaped = ContextShaper(model, config).shape("What did the kids think?", CHAT)
    assert shaped.conversation
    assert [verdict.text for verdict in shaped.kept] == [CHAT[3]]
    assert shaped.kept[0].tokens == model.count_tokens([CHAT[3]])[0]
    assert any("What did they make of it? They were awestruck." in text for text in asked_of(model))
    assert shaped.to_dict()["conversation"] is True
    assert "conversation" in shaped.explain()


def test_the_same_reply_to_another_question_is_no_repetition():
    chat = [*CHAT, "Ana: Is it late?", "Ben: Yes.", "Ana: Will Mia come to Rome?", "Ben: Yes."]
    model = FakeLanguageModel(lambda context, scored: -1.0 + context.count("Rome? Yes."))
    shaped = ContextShaper(model, ShapingConfig(top_k=1)).shape("Does Mia join them?", chat)
    assert [verdict.index for verdict in shaped.kept] == [len(chat) - 1]
    apart = ContextShaper(model, ShapingConfig(top_k=1)).shape("?Mia", chat, read_as=chat)
    assert apart.verdicts[-1].verdict == "redundant"


def test_the_ranker_reads_replies_too():
    seen = []

    class Watching:
        name = "watching"

        def rank(self, query, passages):
            seen.append(list(passages))
            return BM25Ranker().rank(query, passages)

    config = ShapingConfig(ranker=Watching(), pool_size=3)
    ContextShaper(FakeLanguageModel(), config).shape("Who was awestruck?", CHAT)
    assert seen == [as_replies(CHAT)]


@pytest.mark.parametrize("read_as", [CHAT, as_replies(CHAT)])
def test_caller_decides_how_turns_are_read(read_as):
    model = FakeLanguageModel()
    ContextShaper(model).shape("Who?", CHAT, read_as=read_as)
    assert any(read_as[3] in text for text in asked_of(model))


def test_turns_in_any_order_are_read_behind_the_question_of_the_turn_before_each():
    asked, reply = "Ana: I am back. How was Rome?", "Ben: Hot! And you?"
    assert as_replies_to([reply, asked], [asked, None]) == [
        "Ben: How was Rome? Hot! And you?",
        "Ana: I am back.",
    ]
    # The turn before need not have been retrieved.
    assert as_replies_to([reply], [asked]) == ["Ben: How was Rome? Hot! And you?"]
    assert as_replies_to([reply], ["Ben: Who asks?"]) == [reply]
    assert as_replies_to(["No turn at all."], [asked]) == ["No turn at all."]
