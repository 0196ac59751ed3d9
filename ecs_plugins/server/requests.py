"""What the endpoints read and how they refuse: lengths are checked before anything is computed."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ecs_plugins.common.files import first_fault
from ecs_plugins.errors import EcsPluginsError, InvalidInputError, ModelBusyError, ModelTimeoutError

LONGEST_QUERY = 8_000
"""Characters that a query may have: every document is read behind it."""
LONGEST_ANSWER = 20_000
"""Characters that an answer may have: every statement of it is read behind every document."""

TEXT_FIELD = "text"
"""Where the text of a document stands that is an object."""


def _flag(given: object) -> object:
    return False if given is None else given


Flag = Annotated[bool, BeforeValidator(_flag)]
"""A switch that is off where it is not sent, or null."""

Document = str | dict[str, JsonValue]
"""A document is its text, or an object with its ``text`` or the fields that are to be ranked."""

RequestT = TypeVar("RequestT", bound=BaseModel)


_STATUS: tuple[tuple[type[EcsPluginsError], int], ...] = (
    (InvalidInputError, 422),
    (ModelBusyError, 503),
    (ModelTimeoutError, 504),
    (EcsPluginsError, 500),
)
"""HTTP status by the first class that an error is of."""


async def in_words(answer: Awaitable[Response]) -> Response:
    """An answer, or the words and the status of the error that it has become."""
    try:
        return await answer
    except EcsPluginsError as error:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        headers = {"Retry-After": "1"} if status == 503 else None
        return JSONResponse({"detail": str(error)}, status, headers)


async def parsed(request: Request, kind: type[RequestT]) -> RequestT:
    """What a request says.

    Raises:
        InvalidInputError: It is no JSON, or something in it is missing or another type.
    """
    _check_content_type(request)
    body = await request.body()
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise InvalidInputError(first_fault(error)) from None


def check_length(name: str, text: str, longest: int) -> None:
    """Refuse a text that is too long."""
    if len(text) > longest:
        raise InvalidInputError(f"{name} has {len(text):,} characters; it may have {longest:,}")


def texts_of(
    documents: Sequence[Document], fields: Sequence[str] | None, at_most: int
) -> list[str]:
    """The texts of documents, of objects the fields that are named.

    Raises:
        InvalidInputError: There are too many, or an object has no such field.
    """
    if len(documents) > at_most:
        raise InvalidInputError(f"a request may have {at_most} documents")
    names = fields or [TEXT_FIELD]
    return [_text_of(document, names, index) for index, document in enumerate(documents)]


def _text_of(document: Document, names: Sequence[str], index: int) -> str:
    """The text of a document that is ranked; several fields stand a line each."""
    if isinstance(document, str):
        return document
    values = [document.get(name) for name in names]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise InvalidInputError(
            f"documents.{index}: the object has no field {names[len(texts)]!r} that is a text; "
            "name the fields to rank in rank_fields, or send texts"
        )
    if names == [TEXT_FIELD]:
        return texts[0]
    return "\n".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True))


def _check_content_type(request: Request) -> None:
    """Refuse what a form of a web page sends without asking first."""
    given = request.headers.get("content-type")
    if given is not None and given.partition(";")[0].strip().lower() != "application/json":
        raise InvalidInputError(f"the content type is application/json, got {given!r:.60}")
