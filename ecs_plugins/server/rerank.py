"""A rerank endpoint, in the forms that clients of Cohere, Jina, Voyage and TEI send.

``POST /rerank``, ``/v1/rerank`` and ``/v2/rerank`` take ``documents`` and answer with ``results``
(Cohere, Jina, Voyage), or take ``texts`` and answer with a list (TEI). ``POST /v1/attribute`` is in
`ecs_plugins.server.attributing`; ``GET /health``, ``/ready`` and ``/metrics`` are for those who run
it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from pydantic import BaseModel, Field
from scipy.special import expit
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ecs_plugins.errors import InvalidInputError, ModelTimeoutError
from ecs_plugins.server.access import Callers
from ecs_plugins.server.attributing import PATH as ATTRIBUTE_PATH
from ecs_plugins.server.attributing import AttributionEndpoint
from ecs_plugins.server.loading import Loading
from ecs_plugins.server.requests import (
    LONGEST_QUERY,
    TEXT_FIELD,
    Document,
    Flag,
    check_length,
    in_words,
    parsed,
    texts_of,
)
from ecs_plugins.server.service import Bounds, Service
from ecs_plugins.server.turns import Turns
from ecs_plugins.shaping import ContextShaper, ShapedContext
from ecs_plugins.shaping.result import PassageVerdict

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")


class RerankRequest(BaseModel):
    """As Cohere, Jina and Voyage put it, with ``documents``, or as TEI puts it, with ``texts``."""

    query: str
    documents: list[Document] | None = None
    texts: list[str] | None = None
    top_n: int | None = Field(default=None, ge=1)
    top_k: int | None = Field(default=None, ge=1)
    rank_fields: list[str] | None = None
    return_documents: Flag = False
    return_text: Flag = False

    def passages(self, at_most: int) -> list[str]:
        """The texts that are ranked, checked before anything is computed."""
        if (self.documents is None) == (self.texts is None):
            raise InvalidInputError("send either documents or texts")
        check_length("query", self.query, LONGEST_QUERY)
        given = self.documents if self.texts is None else self.texts
        return texts_of(given or (), self.rank_fields, at_most)

    @property
    def limit(self) -> int | None:
        """How many results are wanted; None is all."""
        if self.top_n is not None and self.top_k is not None and self.top_n != self.top_k:
            raise InvalidInputError("top_k is top_n by another name; send one of them")
        return self.top_k if self.top_n is None else self.top_n


def rerank_app(
    shaper: ContextShaper | Loading[ContextShaper],
    *,
    tokens: Mapping[str, str] | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    max_documents: int = 1000,
    bounds: Bounds | None = None,
) -> Service:
    """The endpoint as an ASGI application.

    Args:
        shaper: Orders the documents. What it keeps and how it handles errors does not matter. One
            that is being loaded answers 503 until it is there.
        tokens: Clients by bearer token (`read_tokens`); None answers this machine alone.
        hosts: Names by which it may be called, besides those of this machine; with tokens and
            without any, all of them.
        origins: Origins of web pages that may call it.
        max_documents: How many documents one request may hold.
        bounds: What a request may cost.
    """
    bounds = bounds or Bounds()
    loading = shaper if isinstance(shaper, Loading) else Loading.done(shaper)
    turns = Turns()
    registry = CollectorRegistry()
    endpoint = _Endpoint(loading, turns, max_documents, registry)
    attributing = AttributionEndpoint(loading, turns, max_documents, registry)
    routes = [Route(path, endpoint.rerank, methods=["POST"]) for path in PATHS]
    routes.append(Route(ATTRIBUTE_PATH, attributing.attribute, methods=["POST"]))
    return Service(
        Starlette(routes=routes),
        "rerank",
        Callers(tokens, hosts, origins, any_host=True),
        bounds,
        turns,
        is_ready=lambda: loading.ready,
        about=lambda: {"model": loading.get().model.name if loading.ready else None},
        registry=registry,
    )


class _Endpoint:
    """Answers requests to order documents."""

    def __init__(
        self,
        loading: Loading[ContextShaper],
        turns: Turns,
        max_documents: int,
        registry: CollectorRegistry,
    ) -> None:
        self._loading = loading
        self._turns = turns
        self._max_documents = max_documents
        self._documents = Counter("ecs_rerank_documents", "Documents ordered.", registry=registry)
        self._tokens = Counter(
            "ecs_rerank_tokens", "Tokens that the model read.", registry=registry
        )
        self._ordering: ContextShaper | None = None

    async def rerank(self, request: Request) -> Response:
        """Answer one request, or say in words why not."""
        return await in_words(self._ordered(request))

    async def _ordered(self, request: Request) -> Response:
        wanted = await parsed(request, RerankRequest)
        passages = wanted.passages(self._max_documents)
        limit = wanted.limit
        shaper = self._shaper()
        # Of what the ranker does not pass on, the model reads nothing.
        share = min(1.0, (shaper.config.pool_size or 1) / max(1, len(passages)))
        size = len(wanted.query) * len(passages) + sum(map(len, passages))
        async with self._turns.turn(request.state.client, round(size * share)):
            shaped = await shaper.ashape(wanted.query, passages)
        self._documents.inc(len(passages))
        self._tokens.inc(shaped.ledger.total())
        if shaped.timed_out:
            budget = shaper.config.budget_s
            raise ModelTimeoutError(f"not every document was scored within {budget:g} seconds")
        return JSONResponse(_answer(wanted, shaped, limit))

    def _shaper(self) -> ContextShaper:
        """The shaper as one that orders, and nothing else."""
        given = self._loading.get()
        if self._ordering is None:
            config = given.config.replace(
                top_k=None,
                max_tokens=None,
                max_characters=None,
                keep_share=None,
                threshold=None,
                min_probability=None,
                redundancy_similarity=None,
                acceptance="independent",
                unit="passage",
                on_error="raise",
            )
            self._ordering = ContextShaper(given.model, config)
        return self._ordering


def _answer(
    wanted: RerankRequest, shaped: ShapedContext, limit: int | None
) -> list[dict[str, Any]] | dict[str, Any]:
    """Every document with its score, best first.

    Repetitions have the score of what they repeat. Behind all that was scored, with the score 0,
    come the documents that the ranker did not pass on, in its order, and the empty ones.
    """
    scores = {verdict.text: _score(verdict) for verdict in shaped.ranked}
    ranks = {each.text: each.rank or len(shaped.verdicts) for each in shaped.verdicts}
    order = sorted(
        shaped.verdicts, key=lambda each: (-scores.get(each.text, 0.0), ranks[each.text])
    )
    ordered = [(each.index, scores.get(each.text, 0.0)) for each in order[:limit]]
    if wanted.texts is not None:
        return [_tei_result(wanted, index, score) for index, score in ordered]
    results = [_result(wanted, index, score) for index, score in ordered]
    return {"id": str(uuid.uuid4()), "model": shaped.model, "results": results}


def _score(verdict: PassageVerdict) -> float:
    """The probability that a document helps, or where none was fitted, its score as one."""
    if verdict.probability is not None:
        return verdict.probability
    return float(expit(verdict.score))


def _tei_result(wanted: RerankRequest, index: int, score: float) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "score": score}
    if wanted.return_text and wanted.texts is not None:
        result["text"] = wanted.texts[index]
    return result


def _result(wanted: RerankRequest, index: int, score: float) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "relevance_score": score}
    if wanted.return_documents and wanted.documents is not None:
        document = wanted.documents[index]
        result["document"] = {TEXT_FIELD: document} if isinstance(document, str) else document
    return result
