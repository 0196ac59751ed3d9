"""What the router integrations are tried with: three strategies, and when each of them pays."""

from ecs_plugins.frontier import StrategyPoint

QUESTION = "Who built the mill?"
TEXTS = (
    ("The mill", "Hester Vane built the mill in 1764."),
    ("The wheel", "The wheel has 32 blades of oak."),
)


def point(strategy, f1, stage1, stage2, **config):
    return StrategyPoint(strategy, config, f1, stage1, stage2)


# At F1 >= 0.7, compression pays from N = 1500 / (600 - 100) = 3 on; bm25 misses the target.
def points():
    return [
        point("full_context", 0.8, 0, 600),
        point("memory_compression", 0.75, 1500, 100, ratio=0.5),
        point("bm25", 0.5, 0, 50, depth=1),
    ]


def words(texts):
    return [len(text.split()) for text in texts]
