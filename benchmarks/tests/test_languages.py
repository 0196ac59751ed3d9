import pytest

from benchmarks.commands.languages import first, orders, read
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

LANGUAGES = read()


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_find_the_answer_in_every_language_and_nothing_crashes(language):
    pairs = LANGUAGES[language]
    assert len(set(pairs)) == 20
    found = first(pairs, orders(FakeLanguageModel(), FakeEmbedder()))
    assert found["bm25"] >= 13
    assert found["default"] >= 10
