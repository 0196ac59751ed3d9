"""A rerank endpoint, in the forms that clients of Cohere, Jina and TEI send.

``POST /rerank``, ``/v1/rerank`` and ``/v2/rerank`` take ``documents`` and answer with ``results``
(Cohere, Jina), or take ``texts`` and answer with a list (TEI). ``GET /health`` and
``GET /metrics`` are for those who run it.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

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

    @property
    def passages(self) -> list[str]:
        found = self.documents if self.texts is None else self.texts
        if found is None or (self.documents is not None and self.texts is not None):
            raise InvalidInputError("send either documents or texts")
        return found


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
        asked = _parsed(await _body(request, max_bytes))
        texts = asked.passages
        if len(texts) > max_documents:
            raise InvalidInputError(f"a request may have {max_documents} documents")
        shaped = await shaper.ashape(asked.query, texts)
        documents.inc(len(texts))
        scored.inc(shaped.ledger.total())
        return JSONResponse(_answer(asked, ranked(shaped), shaper.model.name))

    async def rerank(request: Request) -> Response:
        with waiting.track_inprogress(), seconds.time():
            try:
                response = await answered(request)
            except EcsPluginsError as error:
                response = _refusal(error)
        requests.labels(response.status_code).inc()
        return response

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "model": shaper.model.name})

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    routes = [Route(path, rerank, methods=["POST"]) for path in PATHS]
    routes += [Route("/health", health), Route("/metrics", metrics)]
    return guarded(Starlette(routes=routes), tokens)


def ranked(shaped: ShapedContext) -> list[tuple[int, float]]:
    """Index and score of every document, best first.

    Repetitions have the score of what they repeat. Behind all that was scored, with the score 0,
    come the documents that the ranker did not pass on, in its order, and the empty ones.
    """
    scores = {
        verdict.text: 1 / (1 + math.exp(-(verdict.score or 0.0))) for verdict in shaped.ranked
    }
    ranks = {verdict.text: verdict.rank or len(shaped.verdicts) for verdict in shaped.verdicts}
    order = sorted(
        shaped.verdicts,
        key=lambda each: (-(scores.get(each.text) or 0.0), ranks[each.text], each.index),
    )
    return [(each.index, scores.get(each.text) or 0.0) for each in order]


def _answer(
    asked: _Asked, order: list[tuple[int, float]], model: str
) -> list[dict[str, Any]] | dict[str, Any]:
    passages = asked.passages
    if asked.texts is not None:
        return [
            {"index": index, "score": score}
            | ({"text": passages[index]} if asked.return_text else {})
            for index, score in order
        ]
    results = [
        {"index": index, "relevance_score": score}
        | ({"document": {"text": passages[index]}} if asked.return_documents else {})
        for index, score in order[: asked.top_n]
    ]
    return {"id": str(uuid.uuid4()), "model": model, "results": results}


async def _body(request: Request, at_most: int) -> bytes:
    """What was sent, read no further than it may be long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > at_most:
            raise _TooLargeError(f"a request may have {at_most:,} bytes")
    return bytes(body)


def _parsed(body: bytes) -> _Asked:
    try:
        return _Asked.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"{where}: {first['msg']}" if where else first["msg"]) from None


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


def _refusal(error: EcsPluginsError) -> Response:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"detail": str(error)}, status_code=status, headers=headers)
