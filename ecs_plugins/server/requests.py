"""Requests of the endpoints: parsing, limits of length, and errors as HTTP statuses."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ecs_plugins.common.files import first_fault
from ecs_plugins.errors import (
    EcsPluginsError,
    InvalidInputError,
    ModelBusyError,
    ModelTimeoutError,
    QuotaError,
    StorageError,
)

LONGEST_QUERY = 8_000
"""Characters that a query may have; the model reads it with every document."""
LONGEST_ANSWER = 20_000
"""Characters that an answer may have; the model reads every statement with every document."""

MOST_DOCUMENTS = 1000
"""Documents that a request may have."""

MOST_READ = 40_000_000
"""Characters that the model may read for one attribution: some 10 million tokens."""

_STATEMENT = 80  # usual characters of a statement

TEXT_FIELD = "text"
"""Field that holds the text of a document that is an object."""


def _flag(given: object) -> object:
    return False if given is None else given


Flag = Annotated[bool, BeforeValidator(_flag)]
"""A switch; off if it is null or not sent."""

Document = str | dict[str, JsonValue]
"""A text, or an object with a ``text``."""

Query = Annotated[str, Field(max_length=LONGEST_QUERY)]
Documents = Annotated[list[Document], Field(max_length=MOST_DOCUMENTS)]

RequestT = TypeVar("RequestT", bound=BaseModel)


_STATUS: tuple[tuple[type[EcsPluginsError], int], ...] = (
    (QuotaError, 429),
    (InvalidInputError, 422),
    (ModelBusyError, 503),
    (ModelTimeoutError, 504),
    (StorageError, 507),
    (EcsPluginsError, 500),
)
"""HTTP status by the first class that an error is of."""


def status_of(error: EcsPluginsError) -> int:
    """Return the HTTP status of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


async def in_words(request: Request, answer: Awaitable[Response]) -> Response:
    """Return an answer; an error of this package becomes its message and HTTP status."""
    try:
        return await answer
    except EcsPluginsError as error:
        request.state.error = error  # for the metrics
        status = status_of(error)
        headers = {"Retry-After": "1"} if status == 503 else None
        return JSONResponse({"detail": str(error)}, status, headers)


async def parsed(request: Request, kind: type[RequestT]) -> RequestT:
    """Parse a request, of which nothing else is kept.

    Raises:
        InvalidInputError: It is no JSON, or a field is missing or of another type.
    """
    _check_content_type(request)
    # Not `request.body`, which keeps the body as long as the request.
    parts = [part async for part in request.stream() if part]
    body = b"".join(parts)
    del parts
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise InvalidInputError(first_fault(error)) from None


def check_reading(characters: int) -> None:
    """Refuse a request for which the model would read too much."""
    if characters > MOST_READ:
        raise InvalidInputError(
            f"the model would read about {characters:,} characters, every statement of the answer "
            f"with every document; it may read {MOST_READ:,}: send fewer documents or statements"
        )


def characters_read(query: str, passages: Sequence[str], answer: str) -> int:
    """Return about how many characters are read to attribute an answer.

    Every statement is read after the question and two sentences.
    """
    statements = 1 + len(answer) // _STATEMENT
    return sum(map(len, passages)) + len(answer) + statements * (len(query) + 2 * _STATEMENT)


def texts_of(documents: Sequence[Document]) -> list[str]:
    """Return the texts of documents.

    Raises:
        InvalidInputError: An object has no text.
    """
    texts = []
    for index, document in enumerate(documents):
        text = document if isinstance(document, str) else document.get(TEXT_FIELD)
        if not isinstance(text, str):
            raise InvalidInputError(f"documents.{index}: send a text, or an object with a text")
        texts.append(text)
    return texts


def _check_content_type(request: Request) -> None:
    """Refuse content types that a web page can send to other sites without permission."""
    given = request.headers.get("content-type")
    if given is not None and given.partition(";")[0].strip().lower() != "application/json":
        raise InvalidInputError(f"the content type is application/json, got {given!r:.60}")
