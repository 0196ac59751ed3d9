from benchmarks.evidence.candidates import CandidateFinder
from benchmarks.evidence.catalogue import Tools
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

UNITS = (
    "Ana bought a red boat in May.",
    "The weather is fine today.",
    "Ben sold his boat to Carl.",
    "A boat needs paint.",
    "Carl lives in Oslo with a cat.",
    "Nothing of interest happened.",
)


def question(name="q", asked="Who bought a red boat?", answer="Ana", evidence=(0,), **changes):
    return EvidenceQuestion(name, asked, (answer,), changes.pop("units", UNITS), evidence, name,
                            **changes)  # fmt: skip


def tools():
    return Tools.of(FakeEmbedder())


def finder(model=None, pool_size=5, **options):
    return CandidateFinder(tools().convex, model or FakeLanguageModel(), pool_size, **options)
