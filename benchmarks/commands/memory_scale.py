"""``python -m benchmarks memory-scale``: how a memory behaves as it grows."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    from benchmarks.memory_scale.growth import ScaleResult


def memory_scale(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    size: Annotated[
        list[int] | None, typer.Option(help="Vectors; repeat it. Default: 1000, 10000, 100000.")
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(help="A file of sentences, one per line: real sentence vectors as well."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="A PostgreSQL server, or private for a new one: a memory there and one in a file."
        ),
    ] = None,
) -> None:
    """Recall, latency, adds per second, bytes, opening and rebuilding, beside what others need."""
    from benchmarks.memory_scale import growth as scale

    sizes = size or [1_000, 10_000, 100_000]
    if min(sizes) < 500:
        raise InvalidInputError("a size below 500 measures noise; use --size 1000 or more")
    results: list[ScaleResult] = []
    if address is not None:
        from benchmarks.memory_scale.server import measure_server
        from benchmarks.private_server import place_of

        with place_of(address) as place:
            for count in sizes:
                figures = measure_server(count, str(place))
                results.append(scale.ScaleResult(count, "on a server", figures))
                _write(out, results)
        typer.echo(scale.table(results))
        return
    for count in sizes:
        results.append(
            scale.measure(
                scale.latent_vectors(count),
                scale.latent_vectors(scale.QUERIES, seed=1),
                source="latent",
                progress=lambda step, n=count: typer.echo(f"{n:,} latent: {step}", err=True),  # type: ignore[misc]
            )
        )
        _write(out, results)
    if texts is not None:
        results.append(_of_sentences(texts))
        _write(out, results)
    typer.echo(scale.table(results))


def _of_sentences(file: Path) -> ScaleResult:
    from benchmarks.memory_scale import growth as scale
    from ecs_plugins.ranking.embedder import default_embedder

    sentences = list(dict.fromkeys(line.strip() for line in file.read_text().splitlines()))
    sentences = [sentence for sentence in sentences if sentence]
    if len(sentences) < 1000:
        raise InvalidInputError(f"{file} holds {len(sentences)} sentences; 1000 are needed")
    typer.echo(f"embedding {len(sentences):,} sentences", err=True)
    vectors = default_embedder().embed_documents(sentences)
    return scale.measure(
        vectors[: -scale.QUERIES],
        vectors[-scale.QUERIES :],
        source="sentences",
        progress=lambda step: typer.echo(f"sentences: {step}", err=True),
    )


def _write(out: Path, results: list[ScaleResult]) -> None:
    from benchmarks.memory_scale import growth as scale

    out.mkdir(parents=True, exist_ok=True)
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    content = {"machine": machine, "results": [asdict(result) for result in results]}
    (out / "memory_scale.json").write_text(json.dumps(content, indent=2))
    (out / "memory_scale.md").write_text(scale.table(results))
