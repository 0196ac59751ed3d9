"""The table of signals next to rankers."""

from benchmarks.commands.signals import orders_of, table
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.ranking.registry import make_ranker

UNITS = (
    "Ana bought a red boat in May.",
    "The weather is fine today.",
    "Ben sold his boat to Carl.",
    "Carl lives in Oslo with a cat.",
)


def test_each_method_has_a_row_and_the_answer_helps_those_that_get_it():
    asked = EvidenceQuestion("q", "Who lives up north?", ("Carl with a cat",), UNITS, (3,), "q")
    model = FakeLanguageModel(replies=lambda prompt: prompt.split()[0])
    embedder = FakeEmbedder()
    shown = table({"own": [asked]}, orders_of(model, embedder), make_ranker("fused", embedder))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines()]
    assert rows[0] == ["method", "given the answer", "own (1) F1", "own (1) AUC"]
    found = {(name, answered): f1 for name, answered, f1, _ in rows[2:]}
    assert {("default", "no"), ("judge", "no"), ("answer_shift", "yes")} <= found.keys()
    assert found["BM25", "yes"] == "1.00"
    assert all(0 <= float(f1) <= 1 for f1 in found.values())
