"""The endpoint ``POST /v1/attribute``: citations and checks of an answer."""

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
        """Return the texts of the documents; refuse what is too long."""
        check_length("query", self.query, LONGEST_QUERY)
        check_length("answer", self.answer, LONGEST_ANSWER)
        return texts_of(self.documents, self.rank_fields, at_most)


class AttributionEndpoint:
    """Answers requests to attribute.

    Args:
        loading: The shaper, once it is loaded.
        turns: The order of clients.
        max_documents: Most documents of a request.
        registry: The registry of its metrics.
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
        """Answer one request, or refuse it with a reason."""
        return await in_words(request, self._attributed(request))

    async def _attributed(self, request: Request) -> Response:
        wanted = await parsed(request, AttributionRequest)
        passages = wanted.passages(self._max_documents)
        shaper = self._loading.get()
        size = characters_read(wanted.query, passages, wanted.answer)
        check_reading(size)
        attribution = await self._turns.compute(
            request.state.client, size, shaper.attribute, wanted.query, passages, wanted.answer
        )
        self._statements.inc(len(attribution.statements))
        self._tokens.inc(attribution.ledger.total())
        return JSONResponse({"id": str(uuid.uuid4()), **told(attribution)})


def characters_read(query: str, passages: Sequence[str], answer: str) -> int:
    """Return about how many characters are read to attribute an answer.

    Every statement is read after the question and two sentences.
    """
    statements = 1 + len(answer) // _STATEMENT
    return sum(map(len, passages)) + len(answer) + statements * (len(query) + 2 * _STATEMENT)


_STATEMENT = 80  # usual characters of a statement


def told(attribution: Attribution) -> Mapping[str, Any]:
    """Return an attribution as it is sent: its statements, and the answer with its marks."""
    data = attribution.to_dict()
    del data["query"], data["answer"]
    data["cited"] = attribution.cited
    data["marked"] = attribution.marked()
    return data
