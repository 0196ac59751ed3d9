"""Endpoint that attributes an answer to documents: ``POST /v1/attribute``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ecs_plugins.server.requests import (
    LONGEST_ANSWER,
    LONGEST_QUERY,
    Document,
    check_length,
    check_reading,
    in_words,
    parsed,
    texts_of,
)
from ecs_plugins.server.startup import Loading
from ecs_plugins.server.turns import Turns
from ecs_plugins.shaping import ContextShaper
from ecs_plugins.shaping.attribution.result import Attribution

PATH = "/v1/attribute"


class AttributionRequest(BaseModel):
    """A question, its answer, and the documents that the answer may rest on."""

    query: str
    answer: str
    documents: list[Document]
    rank_fields: list[str] | None = None

    def passages(self, at_most: int) -> list[str]:
        """Return the texts of the documents, once all lengths are checked."""
        check_length("query", self.query, LONGEST_QUERY)
        check_length("answer", self.answer, LONGEST_ANSWER)
        return texts_of(self.documents, self.rank_fields, at_most)


class AttributionEndpoint:
    """Answers requests to attribute.

    Args:
        loading: What attributes, once it is there.
        turns: Whose request is computed next.
        max_documents: How many documents one request may hold.
        registry: Of its metrics.
    """

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
        self._statements = Counter(
            "ecs_attribute_statements", "Statements attributed.", registry=registry
        )
        self._tokens = Counter(
            "ecs_attribute_tokens", "Tokens that the model read to attribute.", registry=registry
        )

    async def attribute(self, request: Request) -> Response:
        """Answer one request, or send the message of an error."""
        return await in_words(request, self._attributed(request))

    async def _attributed(self, request: Request) -> Response:
        wanted = await parsed(request, AttributionRequest)
        passages = wanted.passages(self._max_documents)
        shaper = self._loading.get()
        size = characters_read(shaper, wanted.query, passages, wanted.answer)
        check_reading(size)
        attribution = await self._turns.compute(
            request.state.client, size, shaper.attribute, wanted.query, passages, wanted.answer
        )
        self._statements.inc(len(attribution.statements))
        self._tokens.inc(attribution.ledger.total())
        return JSONResponse({"id": str(uuid.uuid4()), **told(attribution)})


def characters_read(shaper: ContextShaper, query: str, passages: Sequence[str], answer: str) -> int:
    """Estimate the characters that the model reads to attribute an answer.

    Every statement is read after the question and every passage that the ranker passes on.
    """
    read = min(len(passages), shaper.config.pool_size or len(passages))
    share = read / max(1, len(passages))
    statements = 1 + len(answer) // _STATEMENT
    behind_each = statements * len(query) + len(answer)
    return round(share * sum(map(len, passages))) + read * behind_each


_STATEMENT = 80  # characters of a statement, about


def told(attribution: Attribution) -> Mapping[str, Any]:
    """Return an attribution as JSON: its statements, and the answer with its marks."""
    data = attribution.to_dict()
    del data["query"], data["answer"]
    data["cited"] = attribution.cited
    data["marked"] = attribution.marked()
    return data
