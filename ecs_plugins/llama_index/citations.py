"""What an answer rests on, around any query engine: scores and citations of its source nodes.

A translation only: `ecs_plugins.shaping.attribution` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.types import TokenAsyncGen, TokenGen
from typing_extensions import override

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.integrations.citing import Attributed, AttributionFields, cited_metadata
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.llama_index.postprocessor import with_hidden_key
from ecs_plugins.shaping.attribution.result import Attribution

Attributable = Response | StreamingResponse | AsyncStreamingResponse
"""A response whose answer is a text."""

_dispatcher = get_dispatcher(__name__)


class ECSCitationsEvent(BaseEvent):
    """What became of the attribution of an answer: its statements, or ``error``."""

    query: str
    details: dict[str, Any]

    @classmethod
    @override
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return "ECSCitationsEvent"


class ECSCitationQueryEngine(BaseQueryEngine):
    """Cites, for every statement of another engine's answer, the source nodes that it rests on.

    ```python
    engine = ECSCitationQueryEngine(index.as_query_engine(), marks=True)
    response = engine.query("When does the ferry leave?")
    response.source_nodes[0].metadata["ecs"]["citations"]
    ```

    The source nodes come back as copies: those that are cited first, in the order in which the
    answer needs them, so that ``[1]`` is the first one, as with a ``CitationQueryEngine``. Their
    score is then the probability that the answer rests on them, and ``metadata["ecs"]``, hidden
    from models, holds ``citations``: each with the statement, its place in the answer as it came,
    and the sentence of the node; behind them come the other nodes with their own scores. The
    statements, with their words that no node has, are in ``response.metadata["ecs"]``.

    A streaming response is passed on as it comes and attributed when it has ended; its text has no
    marks. If it fails or takes longer than ``budget_s``, the answer stays as it came, with a
    warning in the log and ``error`` in its metadata. A structured answer is left alone.

    Args:
        engine: Whose answers are cited.
        metadata_mode: Which text of a node is read; by default what the answering model reads.
        callback_manager: Of this engine; by default that of the other one.
        fields: Those of `AttributionFields`.

    Raises:
        ConfigurationError: The engine is none, or a field is unknown or cannot be used.
    """

    def __init__(
        self,
        engine: BaseQueryEngine,
        *,
        metadata_mode: MetadataMode = MetadataMode.LLM,
        callback_manager: CallbackManager | None = None,
        **fields: Any,
    ) -> None:
        if not isinstance(engine, BaseQueryEngine):
            raise ConfigurationError(
                f"citations are written around a query engine, got {type(engine).__name__}; pass "
                "index.as_query_engine()"
            )
        super().__init__(callback_manager or engine.callback_manager)
        self.engine = engine
        self._citing = AttributionFields(**fields)
        self._mode = metadata_mode

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        response = self.engine.query(query_bundle)
        query = query_bundle.query_str
        if isinstance(response, StreamingResponse):
            response.response_gen = self._followed(response, response.response_gen, query)
        elif isinstance(response, Response):
            texts = self._texts(response)
            attributed = self._citing.attribute(query, texts, response.response or "")
            self._fill(response, query, attributed)
            self._mark(response, attributed)
        return response

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        response = await self.engine.aquery(query_bundle)
        query = query_bundle.query_str
        if isinstance(response, AsyncStreamingResponse):
            response.response_gen = self._afollowed(response, response.response_gen, query)
        elif isinstance(response, StreamingResponse):
            response.response_gen = self._followed(response, response.response_gen, query)
        elif isinstance(response, Response):
            texts = self._texts(response)
            attributed = await self._citing.aattribute(query, texts, response.response or "")
            self._fill(response, query, attributed)
            self._mark(response, attributed)
        return response

    def _followed(self, response: StreamingResponse, pieces: TokenGen, query: str) -> TokenGen:
        """The pieces of an answer; when they have ended, it is attributed."""
        answer = ""
        for piece in pieces:
            answer += piece
            yield piece
        attributed = self._citing.attribute(query, self._texts(response), answer)
        self._fill(response, query, attributed)

    async def _afollowed(
        self, response: AsyncStreamingResponse, pieces: TokenAsyncGen, query: str
    ) -> TokenAsyncGen:
        """`_followed` with the model off the event loop."""
        answer = ""
        async for piece in pieces:
            answer += piece
            yield piece
        attributed = await self._citing.aattribute(query, self._texts(response), answer)
        self._fill(response, query, attributed)

    def _texts(self, response: Attributable) -> list[str]:
        nodes = response.source_nodes
        return [node.node.get_content(metadata_mode=self._mode) for node in nodes]

    def _fill(self, response: Attributable, query: str, attributed: Attributed) -> None:
        """Write what became of an attribution into a response and its nodes."""
        details = attributed.details()
        attribution = attributed.attribution
        if attribution is not None:
            order = _cited_first(attribution)
            nodes = response.source_nodes
            response.source_nodes = [_cited(index, nodes[index], attribution) for index in order]
            _renumber(details, order)
        response.metadata = {**(response.metadata or {}), METADATA_KEY: details}
        _dispatcher.event(ECSCitationsEvent(query=query, details=details))

    def _mark(self, response: Response, attributed: Attributed) -> None:
        if self._citing.marks and attributed.attribution is not None:
            response.response = attributed.attribution.marked()

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {"engine": self.engine}


def _cited_first(attribution: Attribution) -> list[int]:
    """Indices of the passages in the order of the marks, then those of the others."""
    others = [index for index in range(attribution.passages) if index not in attribution.numbers]
    return [*attribution.cited, *others]


def _renumber(details: dict[str, Any], order: Sequence[int]) -> None:
    """Let details name passages by their places in another order."""
    place = {index: number for number, index in enumerate(order)}
    details["cited"] = [place[index] for index in details["cited"]]
    for statement in details["statements"]:
        statement["against"] = [place[index] for index in statement["against"]]
        for citation in statement["citations"]:
            citation["passage"] = place[citation["passage"]]


def _cited(index: int, given: NodeWithScore, attribution: Attribution) -> NodeWithScore:
    """A copy of a node with its citations."""
    citations = _of_node(index, attribution)
    metadata = cited_metadata(given.node.metadata, citations, given.score)
    changes = {"metadata": metadata, **with_hidden_key(given.node)}
    node = given.node.model_copy(update=changes)
    score = attribution.used().get(index, 0.0)
    return NodeWithScore(node=node, score=score)


def _of_node(index: int, attribution: Attribution) -> list[dict[str, Any]]:
    """The citations of one node, each with the statement that rests on it."""
    citations: list[dict[str, Any]] = []
    for statement in attribution.statements:
        for citation in statement.citations:
            if citation.passage != index:
                continue
            told = {
                "statement": statement.text,
                "statement_start": statement.start,
                "statement_end": statement.end,
                "quote": citation.quote,
                "start": citation.start,
                "end": citation.end,
                "probability": citation.probability,
            }
            citations.append(told)
    return citations
