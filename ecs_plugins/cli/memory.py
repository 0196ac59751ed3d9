"""``ecs-plugins memory``: a memory file from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.cli._passages import STDIN, read_text
from ecs_plugins.cli._setup import JsonOption
from ecs_plugins.common import files
from ecs_plugins.common.text import one_line, printable
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.storage.base import is_address

if TYPE_CHECKING:
    from ecs_plugins.memory import (
        EntropicMemory,
        ErasureReceipt,
        MemoryConfig,
        Recollection,
        SleepReport,
    )

HELP = """Add to, search, consolidate, explain, erase and check an Entropic Memory file.

\b
  ecs-plugins memory add --db m.db 'Anna lives in Rome.'
  ecs-plugins memory recall --db m.db 'Where does Anna live?'
  ecs-plugins memory explain --db m.db ID      # why is it there?
  ecs-plugins memory history --db m.db ID      # what did it say before?
  ecs-plugins memory backup --db m.db copy.db  # also while it is used

ID is what `add` and `recall` print. What only reads changes no byte of the file.
"""

app = typer.Typer(name="memory", help=HELP, no_args_is_help=True)

Db = Annotated[str, typer.Option("--db", help="The memory file, or a postgresql:// address.")]
Space = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", help="A label of the namespace; repeat it for more."),
]
Item = Annotated[str, typer.Argument(help="Id of a message or a memory, as `recall` prints it.")]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--embedder", help="A sentence-transformers name or directory; the default model without."
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A JSON file of MemoryConfig settings.")
]


@app.command()
def add(
    db: Db,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Messages; without any, lines of standard input.")
    ] = None,
    namespace: Space = None,
    role: Annotated[str, typer.Option(help="Who said it.")] = "user",
    pinned: Annotated[bool, typer.Option("--pinned", help="Never displace it.")] = False,
    ttl: Annotated[float | None, typer.Option(help="Seconds until it is erased.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Added again with it within a day, they are stored once.")
    ] = None,
    embedder: EmbedderName = None,
    config: ConfigFile = None,
    as_json: JsonOption = False,
) -> None:
    """Remember messages; prints their ids."""
    messages = texts or [line for line in map(str.strip, read_text(STDIN).splitlines()) if line]
    with _open(db, embedder, config) as memory:
        ids = memory.add(
            list(messages),
            namespace=_namespace(namespace),
            role=role,
            pinned=pinned,
            ttl=ttl,
            idempotency_key=key,
        )
    _print(ids, as_json, ids)


@app.command()
def recall(
    db: Db,
    query: Annotated[str, typer.Argument(help="The question.")],
    namespace: Space = None,
    k: Annotated[int | None, typer.Option(help="How many at most.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Minimum score.")] = None,
    embedder: EmbedderName = None,
    config: ConfigFile = None,
    as_json: JsonOption = False,
) -> None:
    """What is remembered about a question, best first."""
    _require_file(db)
    with _open(db, embedder, config) as memory:
        recollections = memory.recall(
            query, namespace=_namespace(namespace), k=k, threshold=threshold
        )
    lines = [_recollection_line(each) for each in recollections]
    nothing = "nothing scores high enough; a lower --threshold finds what is less likely"
    _print([each.to_dict() for each in recollections], as_json, lines or [nothing])


@app.command()
def sleep(
    db: Db,
    namespace: Space = None,
    everywhere: Annotated[bool, typer.Option("--all", help="In every namespace.")] = False,
    due: Annotated[
        bool, typer.Option("--due", help="Where sleep_every messages wait; workers share these.")
    ] = False,
    config: ConfigFile = None,
    as_json: JsonOption = False,
) -> None:
    """Run a sleep phase now."""
    with _inspect(db, config) as memory:
        if everywhere or due:
            reports = memory.sleep_all(memory.config.sleep_every if due else 1)
        else:
            report = memory.sleep(_namespace(namespace))
            reports = [] if report is None else [report]
    lines = [_sleep_line(report) for report in reports]
    _print([report.to_dict() for report in reports], as_json, lines or ["nothing to consolidate"])


@app.command()
def decisions(
    db: Db,
    namespace: Space = None,
    item: Annotated[str | None, typer.Option(help="Only those about this id.")] = None,
    limit: Annotated[int | None, typer.Option(help="How many at most.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Why things were kept, merged, rejected and displaced."""
    with _read(db) as memory:
        found = memory.decisions(_namespace(namespace), item_id=item, limit=limit)
    _print(
        [asdict(each) for each in found], as_json, [*map(str, found)] or ["no decision is recorded"]
    )


@app.command()
def history(db: Db, item: Item, as_json: JsonOption = False) -> None:
    """Every stored version of a memory, oldest first.

    A message has one version; `explain` tells what became of it.
    """
    with _read(db) as memory:
        found = memory.history(item)
    _print(
        [each.to_dict() for each in found],
        as_json,
        [
            f"version {each.version}, {'live' if each.live else 'replaced'}, "
            f"support {each.support}: {one_line(each.text)}"
            for each in found
        ]
        or ["no memory of this id is stored; `recall` prints ids"],
    )


@app.command()
def explain(db: Db, item: Item, as_json: JsonOption = False) -> None:
    """Why a message or a memory is where it is: its free energy, rank, versions and decisions."""
    with _read(db) as memory:
        found = memory.explain(item)
    _print(asdict(found), as_json, [one_line(found.text), *found.lines])


@app.command()
def calibrate(db: Db, as_json: JsonOption = False) -> None:
    """Measure how near unrelated texts lie under an embedder that is not the default one."""
    with _inspect(db) as memory:
        scale = memory.admin.calibrate()
    line = f"unrelated texts: cosine {scale.mean:.3f} ± {scale.deviation:.3f}"
    _print(scale._asdict(), as_json, [line])


@app.command()
def backup(
    db: Db,
    to: Annotated[Path, typer.Argument(help="The memory file to write; a new one.")],
    as_json: JsonOption = False,
) -> None:
    """Copy the file as of now, also while it is used; the copy is a memory file too."""
    with _read(db) as memory:
        memory.admin.backup(to)
    _print({"file": str(to)}, as_json, [f"a copy as of now in {to}"])


@app.command()
def restore(
    db: Db,
    backup: Annotated[Path, typer.Argument(help="A copy that `backup` wrote.")],
    as_json: JsonOption = False,
) -> None:
    """Put a copy in the place of a memory file that nobody has open, its log included."""
    from ecs_plugins.memory.store.engines import restore as put_back

    if is_address(db):
        raise InvalidInputError("a server's tables are restored with the server's own tools")
    put_back(backup, db)
    _print({"file": str(db)}, as_json, [f"{db} is as it was in {backup}"])


@app.command()
def forget(
    db: Db,
    item: Annotated[str | None, typer.Argument(help="Id of a message or a memory.")] = None,
    namespace: Space = None,
    below: Annotated[bool, typer.Option("--below", help="And all namespaces below it.")] = False,
    where: Annotated[
        str | None, typer.Option("--filter", help="JSON: only messages with such metadata.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Erase one item, or a namespace, or what a filter matches in it; prints the receipt."""
    if (item is None) == (namespace is None):
        raise InvalidInputError("name either an id or a --namespace to forget")
    with _inspect(db) as memory:
        if item is not None:
            receipt = memory.delete(item)
        else:
            receipt = memory.forget(
                _namespace(namespace),
                filter=_parsed(where, "--filter") if where else None,
                below=below,
            )
    _print(receipt.to_dict(), as_json, [_receipt(receipt)])


@app.command()
def export(
    db: Db,
    to: Annotated[
        Path, typer.Argument(help="The JSON lines file to write, or - for standard output.")
    ],
    namespace: Space = None,
    as_json: JsonOption = False,
) -> None:
    """Write everything, or a namespace and what is below it, to JSON lines."""
    with _inspect(db) as memory, TemporaryDirectory() as own:
        file = Path(own, "export.jsonl") if str(to) == STDIN else to
        lines = memory.admin.export(file, namespace=_namespace(namespace) if namespace else None)
        if file is not to:
            sys.stdout.buffer.write(file.read_bytes())
            return
    _print({"file": str(to), "lines": lines}, as_json, [f"{lines} lines in {to}"])


@app.command("import")
def import_(
    db: Db,
    source: Annotated[Path, typer.Argument(help="A JSON lines file that `export` wrote.")],
    embedder: EmbedderName = None,
    as_json: JsonOption = False,
) -> None:
    """Read an export into namespaces that are empty here: all of it or nothing."""
    if not source.is_file():  # before a memory file is made for it
        raise StorageError(f"there is no export {source}; check the path")
    with _open(db, embedder, None) as memory:
        counts = memory.admin.import_(source)
    _print(counts, as_json, [f"{count} x {kind}" for kind, count in counts.items()])


@app.command()
def verify(db: Db, as_json: JsonOption = False) -> None:
    """Check every promise of the file; exit status 1 when one is broken."""
    with _read(db) as memory:
        found = memory.admin.verify()
    _print(
        asdict(found) | {"ok": found.ok},
        as_json,
        [*found.problems] or [f"{found.checked} records checked, all right"],
    )
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def inspect(
    db: Db,
    html: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")],
    namespace: Space = None,
) -> None:
    """Write a page that shows every memory's life and why it was kept or displaced."""
    from ecs_plugins.cli import pages

    with _read(db) as memory:
        chosen = [_namespace(namespace)] if namespace else memory.namespaces()
        below = _namespace(namespace) if namespace else ()
        files.write_atomically(html, pages.memory_page(memory, chosen, below))
    typer.echo(f"{html} shows {len(chosen)} namespace(s)")


@app.command()
def stats(db: Db, as_json: JsonOption = False) -> None:
    """How full the file is."""
    with _read(db) as memory:
        found = memory.admin.stats()
    _print(
        found.to_dict(),
        as_json,
        [
            f"{found.path}: {found.bytes:,} bytes, embedder {found.embedder['name']} "
            f"({found.embedder['dimension']})",
            *(
                f"{'/'.join(each.namespace)}: {each.messages} messages, {each.hot} hot, "
                f"{each.cold} cold ({each.pinned} pinned), {each.sleeps} sleep phases, "
                f"{each.since_sleep} since the last"
                for each in found.namespaces
            ),
            *([f"{found.items} key-value items"] if found.items else []),
        ],
    )


def _open(db: str, embedder: str | None, config: Path | None) -> EntropicMemory:
    from ecs_plugins.memory import EntropicMemory
    from ecs_plugins.ranking.embedder import SentenceTransformerEmbedder, default_embedder

    chosen = default_embedder() if embedder is None else SentenceTransformerEmbedder(embedder)
    return EntropicMemory.open(db, embedder=chosen, config=_config(config))


def _inspect(db: str, config: Path | None = None) -> EntropicMemory:
    """Open a file for what may write and embeds with none but the default embedder."""
    from ecs_plugins.memory import EntropicMemory, StoreConfig
    from ecs_plugins.memory.store.engines import open_engine
    from ecs_plugins.memory.store.identity import RecordedEmbedder

    _require_file(db)
    with closing(open_engine(db, StoreConfig())[0]) as database:
        embedder = RecordedEmbedder(database)
    return EntropicMemory.open(db, embedder=embedder, config=_config(config))


def _read(db: str) -> EntropicMemory:
    from ecs_plugins.memory import EntropicMemory

    return EntropicMemory.open(db, read_only=True)


def _config(file: Path | None) -> MemoryConfig | None:
    from ecs_plugins.memory import MemoryConfig

    if file is None:
        return None
    return MemoryConfig.from_json(_parsed(files.read_text(file), f"--config {file}"))


def _parsed(text: str, name: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInputError(f"{name} is not a JSON object, such as {{...}}")
    return value


def _require_file(db: str) -> None:
    if not (is_address(db) or Path(db).is_file()):  # a question must not make the file that it asks
        raise StorageError(f"there is no memory file {db}; check the path")


def _namespace(labels: Sequence[str] | None) -> tuple[str, ...]:
    from ecs_plugins.memory.types import DEFAULT_NAMESPACE

    return tuple(labels) if labels else DEFAULT_NAMESPACE


def _sleep_line(report: SleepReport) -> str:
    """What one sleep phase did."""
    counts = ", ".join(f"{count} {kind}" for kind, count in report.counts.items())
    return (
        f"sleep {report.id} in {'/'.join(report.namespace)}: "
        f"hot {report.hot[0]} -> {report.hot[1]}, cold {report.cold[0]} -> {report.cold[1]}, "
        f"{counts or 'no decision'}"
    )


def _recollection_line(recollection: Recollection) -> str:
    """Score, tier, id and text of a recollection, and what else is shown of it."""
    details = f"  ({recollection.details})" if recollection.details else ""
    text = one_line(recollection.text)
    return f"{recollection.score:.3f}  {recollection.tier:4}  {recollection.id}  {text}{details}"


def _receipt(receipt: ErasureReceipt) -> str:
    return (
        f"erased {len(receipt.messages)} messages, {receipt.hot_erased} hot items, "
        f"{len(receipt.memories_erased)} memories; derived anew {receipt.hot_derived} hot items, "
        f"{len(receipt.memories_derived)} memories; {receipt.decisions} decisions marked"
        + ("" if receipt.scrubbed else "; run compact later, its files still have copies")
    )


def _print(value: object, as_json: bool, lines: Sequence[str]) -> None:
    if as_json:
        typer.echo(printable(json.dumps(value, ensure_ascii=False, indent=2)))
    else:
        for line in lines:
            typer.echo(printable(line))
