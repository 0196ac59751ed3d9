"""Spans of OpenTelemetry, where ``opentelemetry-api`` is installed, as OpenInference names them.

Questions and texts are hidden as the usual environment variables say:
``OPENINFERENCE_HIDE_INPUTS`` and ``OPENINFERENCE_HIDE_INPUT_TEXT`` hide inputs,
``OPENINFERENCE_HIDE_OUTPUTS`` and ``OPENINFERENCE_HIDE_OUTPUT_TEXT`` hide outputs, and
``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` hides both if it is set to anything but
``true``, ``span_only`` or ``span_and_event``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple

_REDACTED = "__REDACTED__"
"""Text of OpenInference in place of a hidden one."""
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES = ("true", "1", "span_only", "span_and_event")
_INPUTS = ("input.", "reranker.query", "reranker.input_documents")
_OUTPUTS = ("output.", "reranker.output_documents", "retrieval.documents")
_TEXTS = (".value", ".query", ".content")


class TracedDocument(NamedTuple):
    """Document of a span; None values are left out."""

    content: str
    score: float | None = None
    id: str | None = None


@contextmanager
def span(
    kind: Literal["RERANKER", "RETRIEVER", "EVALUATOR"], attributes: Mapping[str, str | int | None]
) -> Iterator[Callable[[str, Sequence[TracedDocument]], None]]:
    """Open a span around the block; yield a function that sets documents under a name."""
    trace = _opentelemetry()
    if trace is None:
        yield lambda *_: None
        return
    name = f"ecs_plugins.{kind.lower()}"
    with trace.get_tracer("ecs_plugins").start_as_current_span(name) as current:

        def set_documents(name: str, documents: Sequence[TracedDocument]) -> None:
            if not current.is_recording():
                return
            for number, document in enumerate(documents):
                prefix = f"{name}.{number}.document"
                _set_attributes(
                    current,
                    {f"{prefix}.{part}": value for part, value in document._asdict().items()},
                )

        try:
            yield set_documents
        finally:  # last, as a span of many documents loses its first attributes
            _set_attributes(current, {"openinference.span.kind": kind, **attributes})


def _set_attributes(current: Any, attributes: Mapping[str, str | int | float | None]) -> None:
    for key, value in attributes.items():
        if value is not None:
            is_hidden = isinstance(value, str) and key.endswith(_TEXTS) and _hides(key)
            current.set_attribute(key, _REDACTED if is_hidden else value)


def _hides(key: str) -> bool:
    """Return True if the environment hides the text of an attribute."""
    captured = os.environ.get(_CAPTURE, "").strip().lower()
    if captured and captured not in _CAPTURES:
        return True
    for side, prefixes in (("INPUT", _INPUTS), ("OUTPUT", _OUTPUTS)):
        if key.startswith(prefixes):
            names = (f"OPENINFERENCE_HIDE_{side}S", f"OPENINFERENCE_HIDE_{side}_TEXT")
            return any(os.environ.get(name, "").strip().lower() in ("true", "1") for name in names)
    return False


def trace_attributes(values: Mapping[str, Any], prefix: str = "ecs_plugins.frontier") -> None:
    """Set plain values as attributes of the current span."""
    trace = _opentelemetry()
    if trace is None:
        return
    for name, value in values.items():
        if isinstance(value, Mapping):
            trace_attributes(value, f"{prefix}.{name}")
        elif isinstance(value, str | bool | int | float):
            trace.get_current_span().set_attribute(f"{prefix}.{name}", value)


@cache
def _opentelemetry() -> Any:
    # Looked for once: a package that is not there is sought anew at every import.
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace
