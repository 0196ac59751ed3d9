"""OpenTelemetry, where ``opentelemetry-api`` is installed: spans as OpenInference names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple


class TracedDocument(NamedTuple):
    """Return a document for a span, without None values."""

    content: str
    score: float | None = None
    id: str | None = None


@contextmanager
def span(
    kind: Literal["RERANKER", "RETRIEVER", "EVALUATOR"], attributes: Mapping[str, str | int | None]
) -> Iterator[Callable[[str, Sequence[TracedDocument]], None]]:
    """A span around the block, which gets a function that sets documents under a name."""
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
            current.set_attribute(key, value)


def trace_attributes(values: Mapping[str, Any], prefix: str = "ecs_plugins.frontier") -> None:
    """Set plain values on the current span."""
    trace = _opentelemetry()
    if trace is None:
        return
    for name, value in values.items():
        if isinstance(value, Mapping):
            trace_attributes(value, f"{prefix}.{name}")
        elif isinstance(value, str | bool | int | float):
            trace.get_current_span().set_attribute(f"{prefix}.{name}", value)


def record_metrics(values: Mapping[str, float], label: str) -> None:
    """Record values in histograms, by the chosen strategy."""
    if _opentelemetry() is None:
        return
    for name, value in values.items():
        _histogram(f"ecs_plugins.frontier.{name}").record(value, {"label": label})


@cache
def _histogram(name: str) -> Any:
    from opentelemetry import metrics

    return metrics.get_meter("ecs_plugins").create_histogram(name)


@cache
def _opentelemetry() -> Any:
    # Looked for once: a package that is not there is sought anew at every import.
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace
