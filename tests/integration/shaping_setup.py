"""What the shaping integrations are tried with: four passages and models that misbehave."""

import threading

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.shaping import ShapingConfig

QUERY = "In which city does Maria live now?"
TEXTS = (
    "The ferry to the island leaves at nine.",
    "Does Maria know in which city the bridge stands?",
    "Grilled sardines taste best in June.",
    "The city in which Maria does live now is Lisbon.",
)
GIVEN_ORDER = ShapingConfig(ranker=None, redundancy_similarity=None)


RANKED = ShapingConfig(ranker="dense", pool_size=2, redundancy_similarity=None)


def read_by(model: FakeLanguageModel) -> str:
    """All text that a fake model was asked to score."""
    parts = (part for r in model.requests for part in (*r.candidates, *r.continuations))
    return "".join(segment.text for part in parts for segment in part)


class CountingEmbedder(FakeEmbedder):
    """Remembers what it was asked to embed."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.embedded: list[str] = []

    def embed_documents(self, texts):
        self.embedded += texts
        return super().embed_documents(texts)


class BrokenModel(FakeLanguageModel):
    def score(self, requests):
        raise ScoringError("the log-probabilities are not finite")


class WatchedModel(FakeLanguageModel):
    """Waits in `score` until someone else has made progress, and remembers its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.progress = threading.Event()
        self.progressed_during_scoring = False
        self.thread: threading.Thread | None = None

    def score(self, requests):
        self.thread = threading.current_thread()
        self.started.set()
        self.progressed_during_scoring = self.progress.wait(timeout=10)
        return super().score(requests)
