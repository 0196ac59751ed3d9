"""OpenTelemetry, where ``opentelemetry-api`` is installed: spans as OpenInference names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

Documents = Iterable[tuple[str | None, str, float | None]]
"""Of each document its id, its text and its score."""


@contextmanager
def span(
    kind: Literal["RERANKER", "RETRIEVER"], attributes: Mapping[str, str | int | None]
) -> Iterator[Callable[[str, Documents], None]]:
    """A span around the block, which gets a function that sets documents under a name."""
    trace = _opentelemetry()
    if trace is None:
        yield lambda *_: None
        return
    name = f"ecs_plugins.{kind.lower()}"
    with trace.get_tracer("ecs_plugins").start_as_current_span(name) as current:

        def set_documents(name: str, documents: Documents) -> None:
            for number, parts in enumerate(documents if current.is_recording() else ()):
                for part, value in zip(("id", "content", "score"), parts, strict=True):
                    if value is not None:
                        current.set_attribute(f"{name}.{number}.document.{part}", value)

        try:
            yield set_documents
        finally:  # last, as a span of many documents loses its first attributes
            for key, value in {"openinference.span.kind": kind, **attributes}.items():
                if value is not None:
                    current.set_attribute(key, value)


def trace_attributes(values: Mapping[str, Any], prefix: str = "ecs_plugins.frontier") -> None:
    """Set plain values on the current span."""
    trace = _opentelemetry()
    for name, value in values.items() if trace else ():
        if isinstance(value, Mapping):
            trace_attributes(value, f"{prefix}.{name}")
        elif isinstance(value, str | bool | int | float):
            trace.get_current_span().set_attribute(f"{prefix}.{name}", value)


def record_metrics(values: Mapping[str, float], label: str) -> None:
    """Record values in histograms, by what was chosen."""
    for name, value in values.items() if _opentelemetry() else ():
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
