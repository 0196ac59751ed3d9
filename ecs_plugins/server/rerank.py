"""A rerank endpoint, in the forms that clients of Cohere, Jina and TEI send.

``POST /rerank``, ``/v1/rerank`` and ``/v2/rerank`` take ``documents`` and answer with ``results``
(Cohere, Jina), or take ``texts`` and answer with a list (TEI). ``GET /health`` and
``GET /metrics`` are for those who run it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from scipy.special import expit
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ecs_plugins.common.files import first_fault
from ecs_plugins.errors import EcsPluginsError, InvalidInputError, ModelBusyError, ModelTimeoutError
from ecs_plugins.server.access import guarded
from ecs_plugins.shaping import ContextShaper, ShapedContext

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")

_Document = Annotated[
    str, BeforeValidator(lambda given: given.get("text") if isinstance(given, dict) else given)
]
"""A document is its text, or an object with its ``text``."""


class _Asked(BaseModel):
    """As Cohere and Jina put it, with ``documents``, or as TEI puts it, with ``texts``."""

    query: str
    documents: list[_Document] | None = None
    texts: list[str] | None = None
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False
    return_text: bool = False

    def passages(self, at_most: int) -> list[str]:
        found = self.documents if self.texts is None else self.texts
        if found is None or (self.documents is not None and self.texts is not None):
            raise InvalidInputError("send either documents or texts")
        if len(found) > at_most:
            raise InvalidInputError(f"a request may have {at_most} documents")
        return found


class _TooLargeError(InvalidInputError):
    """The request has too many bytes."""


_STATUS: tuple[tuple[type[EcsPluginsError], int], ...] = (
    (_TooLargeError, 413),
    (InvalidInputError, 422),
    (ModelBusyError, 503),
    (ModelTimeoutError, 504),
    (EcsPluginsError, 500),
)
"""HTTP status by the first class that an error is of."""


def rerank_app(
    shaper: ContextShaper,
    *,
    tokens: Mapping[str, str] | None = None,
    max_documents: int = 1000,
    max_bytes: int = 8 << 20,
) -> ASGIApp:
    """The endpoint as an ASGI application.

    Args:
        shaper: Orders the documents. What it keeps and how it handles errors does not matter.
        tokens: Clients by bearer token (`read_tokens`); None answers this machine alone.
        max_documents: How many documents one request may hold.
        max_bytes: How long it may be.
    """
    config = shaper.config.replace(
        top_k=None, max_tokens=None, threshold=None, redundancy_similarity=None,
        acceptance="independent", unit="passage", on_error="raise",
    )  # fmt: skip
    shaper = ContextShaper(shaper.model, config)
    registry = CollectorRegistry()
    requests = Counter("ecs_rerank_requests", "Answers, by status.", ["status"], registry=registry)
    documents = Counter("ecs_rerank_documents", "Documents ordered.", registry=registry)
    scored = Counter("ecs_rerank_tokens", "Tokens that the model read.", registry=registry)
    waiting = Gauge("ecs_rerank_waiting", "Requests not yet answered.", registry=registry)
    seconds = Histogram("ecs_rerank_seconds", "Until the answer.", registry=registry)

    async def answered(request: Request) -> Response:
        asked = await _parsed(request, max_bytes)
        passages = asked.passages(max_documents)
        shaped = await shaper.ashape(asked.query, passages)
        documents.inc(len(passages))
        scored.inc(shaped.ledger.total())
        return JSONResponse(_answer(asked, shaped))

    async def rerank(request: Request) -> Response:
        with waiting.track_inprogress(), seconds.time():
            try:
                response = await answered(request)
            except EcsPluginsError as error:
                status = next(status for kind, status in _STATUS if isinstance(error, kind))
                headers = {"Retry-After": "1"} if status == 503 else None
                response = JSONResponse({"detail": str(error)}, status, headers)
        requests.labels(response.status_code).inc()
        return response

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "model": shaper.model.name})

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    routes = [Route(path, rerank, methods=["POST"]) for path in PATHS]
    routes += [Route("/health", health), Route("/metrics", metrics)]
    return guarded(Starlette(routes=routes), tokens)


def _answer(asked: _Asked, shaped: ShapedContext) -> list[dict[str, Any]] | dict[str, Any]:
    """Every document with its score, best first.

    Repetitions have the score of what they repeat. Behind all that was scored, with the score 0,
    come the documents that the ranker did not pass on, in its order, and the empty ones.
    """
    scores = {each.text: float(expit(each.score)) for each in shaped.ranked}
    ranks = {each.text: each.rank or len(shaped.verdicts) for each in shaped.verdicts}
    order = sorted(shaped.verdicts, key=lambda v: (-scores.get(v.text, 0.0), ranks[v.text]))
    if asked.texts is not None:
        return [
            {"index": each.index, "score": scores.get(each.text, 0.0)}
            | ({"text": each.text} if asked.return_text else {})
            for each in order
        ]
    results = [
        {"index": each.index, "relevance_score": scores.get(each.text, 0.0)}
        | ({"document": {"text": each.text}} if asked.return_documents else {})
        for each in order[: asked.top_n]
    ]
    return {"id": str(uuid.uuid4()), "model": shaped.model, "results": results}


async def _parsed(request: Request, max_bytes: int) -> _Asked:
    """What was sent, read no further than it may be long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _TooLargeError(f"a request may have {max_bytes:,} bytes")
    try:
        return _Asked.model_validate_json(bytes(body))
    except ValidationError as error:
        raise InvalidInputError(first_fault(error)) from None
