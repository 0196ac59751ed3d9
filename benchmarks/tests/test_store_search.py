from benchmarks.bounded_chat.chats import CachedEmbedder, Chat, ChatQuestion, ChatTurn
from benchmarks.store_search import measured
from ecs_plugins.ranking.embedder import FakeEmbedder


def chat_of_bees() -> Chat:
    said = ["Ana: I keep bees.", "Ben: Where are the bees?", "Ana: On the roof.", "Ben: I swim."]
    turns = tuple(ChatTurn(f"D1:{at}", 0, text) for at, text in enumerate(said))
    questions = (
        ChatQuestion("Who keeps bees?", "Ana", (0,), 4),
        ChatQuestion("Where are the bees?", "On the roof", (2,), 1),
    )
    return Chat("c", turns, questions)


def test_the_turns_that_hold_an_answer_are_found_by_key_and_by_a_recall():
    chat = chat_of_bees()
    results = measured([chat], CachedEmbedder(FakeEmbedder(64)))
    for name in ("EntropicMemory.recall", "EntropicStore.search"):
        assert results[name].recalls == [1.0, 1.0]
        assert len(results[name].searches) == 2
        recall, *costs = results[name].row
        assert recall == "1.000"
        assert min(map(float, costs)) >= 0
