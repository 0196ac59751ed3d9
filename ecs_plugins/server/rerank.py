"""Rerank endpoint in the forms that clients of Cohere, Jina, Voyage and TEI send.

``POST /rerank``, ``/v1/rerank`` and ``/v2/rerank`` take ``documents`` and answer with ``results``
(Cohere, Jina, Voyage), or take ``texts`` and answer with a list (TEI). ``POST /v1/attribute``
cites and checks an answer. ``GET /health``, ``/ready`` and ``/metrics`` are for operators.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from pydantic import AliasChoices, BaseModel, Field
from scipy.special import expit
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.server.access import Callers
from ecs_plugins.server.requests import (
    LONGEST_ANSWER,
    TEXT_FIELD,
    Documents,
    Flag,
    Query,
    characters_read,
    check_reading,
    in_words,
    parsed,
    texts_of,
)
from ecs_plugins.server.running import Loading
from ecs_plugins.server.service import Bounds, Service
from ecs_plugins.server.turns import Turns
from ecs_plugins.shaping import ContextShaper, ShapedContext
from ecs_plugins.shaping.result import PassageVerdict

ATTRIBUTE_PATH = "/v1/attribute"
PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")


class RerankRequest(BaseModel):
    """Request with ``documents`` (Cohere, Jina, Voyage) or with ``texts`` (TEI)."""

    query: Query
    documents: Documents | None = None
    texts: Documents | None = None
    limit: int | None = Field(None, ge=1, validation_alias=AliasChoices("top_n", "top_k"))
    return_documents: Flag = False
    return_text: Flag = False

    def passages(self) -> list[str]:
        """Return the texts to rank."""
        given = [each for each in (self.documents, self.texts) if each is not None]
        if len(given) != 1:
            raise InvalidInputError("send either documents or texts")
        return texts_of(given[0])


class AttributionRequest(BaseModel):
    """A question, its answer, and the documents that the answer may rest on."""

    query: Query
    answer: str = Field(max_length=LONGEST_ANSWER)
    documents: Documents


def rerank_app(
    shaper: ContextShaper | Loading[ContextShaper],
    *,
    tokens: Mapping[str, str] | None = None,
    hosts: Sequence[str] = (),
    bounds: Bounds | None = None,
) -> Service:
    """Return the endpoint as an ASGI application.

    Args:
        shaper: Orders the documents; its settings for filtering and errors are not used. Requests
            get 503 while it is being loaded.
        tokens: Clients by bearer token (`read_tokens`); None answers this machine alone.
        hosts: Host names that clients may use, besides those of this machine; with tokens and
            without any, all of them.
        bounds: Limits of requests.
    """
    bounds = bounds or Bounds()
    loading = shaper if isinstance(shaper, Loading) else Loading.done(shaper)
    turns = Turns()
    registry = CollectorRegistry()
    _watch(loading, registry)
    endpoints = _Endpoints(loading, turns, registry)
    routes = [Route(path, endpoints.rerank, methods=["POST"]) for path in PATHS]
    routes.append(Route(ATTRIBUTE_PATH, endpoints.attribute, methods=["POST"]))
    return Service(
        Starlette(routes=routes),
        "rerank",
        Callers(tokens, hosts, any_host=True),
        bounds,
        turns,
        is_ready=lambda: loading.ready,
        about=lambda: {"model": loading.get().model.name if loading.ready else None},
        registry=registry,
    )


def _watch(loading: Loading[ContextShaper], registry: CollectorRegistry) -> None:
    """Add metrics of the model: seconds of loading, and memory of kept passages."""
    seconds = Gauge("ecs_model_load_seconds", "Until the model was loaded.", registry=registry)
    seconds.set_function(lambda: loading.seconds)

    def kept_bytes() -> int:
        model = loading.get().model if loading.ready else None
        statistics = getattr(model, "cache_statistics", None)  # of a local model alone
        return 0 if statistics is None else int(statistics.nbytes)

    kept = Gauge("ecs_model_kept_bytes", "Memory of kept passages.", registry=registry)
    kept.set_function(kept_bytes)


class _Endpoints:
    """Endpoints that order documents and attribute answers to them."""

    def __init__(
        self,
        loading: Loading[ContextShaper],
        turns: Turns,
        registry: CollectorRegistry,
    ) -> None:
        self._loading = loading
        self._turns = turns

        def counter(name: str, says: str) -> Counter:
            return Counter(f"ecs_{name}", says, registry=registry)

        self._documents = counter("rerank_documents", "Documents ordered.")
        self._tokens = counter("rerank_tokens", "Tokens that the model read to order.")
        self._statements = counter("attribute_statements", "Statements attributed.")
        self._read = counter("attribute_tokens", "Tokens that the model read to attribute.")
        self._ordering: ContextShaper | None = None

    async def rerank(self, request: Request) -> Response:
        """Return the documents of a request, best first, or the message of an error."""
        return await in_words(request, self._ordered(request))

    async def _ordered(self, request: Request) -> Response:
        wanted = await parsed(request, RerankRequest)
        passages = wanted.passages()
        shaper = self._shaper()
        # The model reads only passages that the ranker passes on.
        share = min(1.0, (shaper.config.pool_size or 1) / max(1, len(passages)))
        size = len(wanted.query) * len(passages) + sum(map(len, passages))
        shaped = await self._turns.compute(
            request.state.client, round(size * share), shaper.shape, wanted.query, passages
        )
        self._documents.inc(len(passages))
        self._tokens.inc(shaped.ledger.total())
        return JSONResponse(_answer(wanted, shaped))

    async def attribute(self, request: Request) -> Response:
        """Return the citations of an answer, or the message of an error."""
        return await in_words(request, self._attributed(request))

    async def _attributed(self, request: Request) -> Response:
        wanted = await parsed(request, AttributionRequest)
        passages = texts_of(wanted.documents)
        shaper = self._loading.get()
        size = characters_read(wanted.query, passages, wanted.answer)
        check_reading(size)
        attribution = await self._turns.compute(
            request.state.client, size, shaper.attribute, wanted.query, passages, wanted.answer
        )
        self._statements.inc(len(attribution.statements))
        self._read.inc(attribution.ledger.total())
        answer = {"id": str(uuid.uuid4()), **attribution.to_dict()}
        del answer["query"], answer["answer"]
        marks = {"cited": attribution.cited, "marked": attribution.marked()}
        return JSONResponse(answer | marks)

    def _shaper(self) -> ContextShaper:
        """Return a copy of the shaper that ranks without filtering."""
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


def _answer(wanted: RerankRequest, shaped: ShapedContext) -> list[dict[str, Any]] | dict[str, Any]:
    """Return every document with its score, best first.

    Repeated documents have one score. After all scored documents, with the score 0, come those
    that the ranker did not pass on, in its order, and the empty ones.
    """
    scores = {verdict.text: _score(verdict) for verdict in shaped.ranked}
    ranks = {each.text: each.rank or len(shaped.verdicts) for each in shaped.verdicts}
    order = sorted(
        shaped.verdicts, key=lambda each: (-scores.get(each.text, 0.0), ranks[each.text])
    )
    ordered = [(each.index, scores.get(each.text, 0.0)) for each in order[: wanted.limit]]
    results = [_result(wanted, index, score) for index, score in ordered]
    if wanted.texts is not None:
        return results
    return {"id": str(uuid.uuid4()), "model": shaped.model, "results": results}


def _score(verdict: PassageVerdict) -> float:
    """Return the probability that a document helps, or else the logistic of its score."""
    if verdict.probability is not None:
        return verdict.probability
    return float(expit(verdict.score))


def _result(wanted: RerankRequest, index: int, score: float) -> dict[str, Any]:
    if wanted.documents is None:
        result: dict[str, Any] = {"index": index, "score": score}
        return result | ({"text": (wanted.texts or ())[index]} if wanted.return_text else {})
    result = {"index": index, "relevance_score": score}
    if wanted.return_documents:
        document = wanted.documents[index]
        result["document"] = {TEXT_FIELD: document} if isinstance(document, str) else document
    return result
