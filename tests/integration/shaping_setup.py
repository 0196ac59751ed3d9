"""Four passages and failing models for the shaping integrations."""

import json
import threading

from langchain_core.documents import Document
from langchain_core.load import dumps, loads
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from ecs_plugins.errors import ScoringError
from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.llama_index import ECSPostprocessor
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
    texts = []
    for request in model.requests:
        for part in (*request.candidates, *request.continuations):
            texts += [segment.text for segment in part]
    return "".join(texts)


class CountingEmbedder(FakeEmbedder):
    """Embedder that records the texts that it computes."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.embedded: list[str] = []

    def _documents(self, texts):
        self.embedded += texts
        return super()._documents(texts)


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


class Compressor:
    """LangChain: documents, whose score is metadata."""

    component = ECSDocumentCompressor

    def given(self, texts=TEXTS):
        documents = []
        for n, text in enumerate(texts):
            metadata = {"score": 0.9 - n / 10, "tag": "x"}
            documents.append(Document(text, id=f"id-{n}", metadata=metadata))
        return documents

    def shape(self, component, given, query=QUERY):
        return component.compress_documents(given, query)

    async def ashape(self, component, given, query=QUERY):
        return await component.acompress_documents(given, query)

    def ids(self, items):
        return [item.id for item in items]

    def text(self, item):
        return item.page_content

    def copied(self, component):
        text = dumps(component)
        known = {"allowed_objects": [ECSDocumentCompressor]}
        return loads(
            text,
            valid_namespaces=["ecs_plugins"],
            **known,
        )

    def score(self, item):
        return item.metadata.get("relevance_score")


class Postprocessor:
    """LlamaIndex: nodes with a score."""

    component = ECSPostprocessor

    def given(self, texts=TEXTS):
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")}
        nodes = []
        for n, text in enumerate(texts):
            node = TextNode(
                text=text,
                id_=f"id-{n}",
                metadata={"tag": "x"},
                relationships=source,
            )
            nodes.append(NodeWithScore(node=node, score=0.9 - n / 10))
        return nodes

    def shape(self, component, given, query=QUERY):
        return component.postprocess_nodes(given, query_str=query)

    async def ashape(self, component, given, query=QUERY):
        return await component.apostprocess_nodes(given, query_str=query)

    def ids(self, items):
        return [item.node_id for item in items]

    def text(self, item):
        return item.get_content(MetadataMode.NONE)

    def copied(self, component):
        written = json.dumps(component.to_dict())
        return ECSPostprocessor.from_dict(json.loads(written))

    def score(self, item):
        return item.score
