"""``ecs-plugins memory``: a memory file from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.cli._records import read_text
from ecs_plugins.cli.model import JsonOption
from ecs_plugins.common import files
from ecs_plugins.common.text import one_line, printable
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.storage.addresses import is_address

if TYPE_CHECKING:
    from ecs_plugins.memory import EntropicMemory, Memory

HELP = """Search, show, move, erase and check an Entropic Memory.

\b
  ecs-plugins memory import --db m.db chats.jsonl
  ecs-plugins memory recall --db m.db 'Where does Anna live?'
  ecs-plugins memory inspect --db m.db ID      # why is it there?
  ecs-plugins memory backup --db m.db copy.db  # also while it is used

ID is printed by `recall`. A command that only reads changes no byte of the file.
"""

app = typer.Typer(name="memory", help=HELP, no_args_is_help=True)

Db = Annotated[str, typer.Option("--db", help="The memory file, or a postgresql:// address.")]
Space = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", help="A label of the namespace; repeat it for more."),
]
Item = Annotated[
    str | None, typer.Argument(help="Id of a message or a memory, as `recall` prints it.")
]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--embedder", help="A sentence-transformers name or directory; the default model without."
    ),
]


@app.command(epilog="Example: ecs-plugins memory recall --db agent.db 'Where does Anna live?'")
def recall(
    db: Db,
    query: Annotated[str, typer.Argument(help="The question.")],
    namespace: Space = None,
    k: Annotated[int | None, typer.Option(help="How many at most.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Minimum score.")] = None,
    embedder: EmbedderName = None,
    as_json: JsonOption = False,
) -> None:
    """Print the memories about a question, best first."""
    _require_file(db)
    with _open(db, embedder) as memory:
        recollections = memory.recall(
            query, namespace=_namespace(namespace), k=k, threshold=threshold
        )
    lines = [_recollection_line(each) for each in recollections]
    nothing = "nothing scores high enough; a lower --threshold finds what is less likely"
    _print([each.to_dict() for each in recollections], as_json, lines or [nothing])


@app.command(epilog="Example: ecs-plugins memory backup --db agent.db copy.db")
def backup(
    db: Db,
    to: Annotated[Path, typer.Argument(help="The memory file to write; a new one.")],
) -> None:
    """Copy the file as of now, also while it is used; the copy is a memory file too."""
    with _read(db) as memory:
        memory.admin.backup(to)
    typer.echo(printable(f"a copy as of now in {to}"))


@app.command(epilog="Example: ecs-plugins memory restore --db agent.db copy.db")
def restore(
    db: Db,
    backup: Annotated[Path, typer.Argument(help="A copy that `backup` wrote.")],
) -> None:
    """Put a copy in the place of a memory file that nobody has open, its log included."""
    from ecs_plugins.memory.store.engines import restore as put_back

    if is_address(db):
        raise InvalidInputError("a server's tables are restored with the server's own tools")
    put_back(backup, db)
    typer.echo(printable(f"{db} is as it was in {backup}"))


@app.command(epilog="Example: ecs-plugins memory forget --db agent.db -n user -n 42")
def forget(
    db: Db,
    item: Annotated[str | None, typer.Argument(help="Id of a message or a memory.")] = None,
    namespace: Space = None,
    below: Annotated[bool, typer.Option("--below", help="And all namespaces below it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase one item or a namespace; print the receipt."""
    if (item is None) == (namespace is None):
        raise InvalidInputError("name either an id or a --namespace to forget")
    with _open_to_erase(db) as memory:
        if item is not None:
            receipt = memory.delete(item)
        else:
            receipt = memory.forget(_namespace(namespace), below=below)
    _print(receipt.to_dict(), as_json, [str(receipt)])


@app.command(epilog="Example: ecs-plugins memory export --db agent.db memory.jsonl")
def export(
    db: Db,
    to: Annotated[Path, typer.Argument(help="The JSON lines file to write.")],
    namespace: Space = None,
) -> None:
    """Write everything, or a namespace and those below it, to JSON lines."""
    with _open_to_erase(db) as memory:
        lines = memory.admin.export(to, namespace=_namespace(namespace) if namespace else None)
    typer.echo(printable(f"{lines} lines in {to}"))


@app.command(
    "import", epilog="Example: ecs-plugins memory import --db agent.db -n user -n 42 chats.json"
)
def import_(
    db: Db,
    source: Annotated[
        Path, typer.Argument(help="An export, or chats of OpenAI or LangChain as JSON.")
    ],
    namespace: Space = None,
    embedder: EmbedderName = None,
    as_json: JsonOption = False,
) -> None:
    """Read an export into namespaces that are empty here, or chats into one namespace.

    An export is read as a whole or not at all. Chats keep their times.
    """
    if not source.is_file():  # before a memory file is made for it
        raise StorageError(f"there is no file {source}; check the path")
    counts = _import_chats(db, source, namespace, embedder)
    if counts is None:
        with _open(db, embedder) as memory:
            counts = memory.admin.import_(source)
    _print(counts, as_json, [f"{count} x {kind}" for kind, count in counts.items()])


def _import_chats(
    db: str, source: Path, namespace: Sequence[str] | None, embedder: str | None
) -> dict[str, int] | None:
    """Add the messages of a file of chats; None if the file is an export of a memory."""
    from ecs_plugins.cli._chats import read_chats

    text = read_text(str(source))
    if _is_export(text):
        return None
    chats = read_chats(text, str(source))
    key = f"import {sha256(text.encode()).hexdigest()}"  # read twice, it is stored once
    with _open(db, embedder) as memory:
        memory.add(chats.messages, namespace=_namespace(namespace), idempotency_key=key)
    return {"messages": len(chats.messages), "left out": chats.left_out}


def _is_export(text: str) -> bool:
    first, _, _ = text.partition("\n")
    try:
        head = json.loads(first)
    except ValueError:
        return False
    return isinstance(head, dict) and head.get("kind") == "header"


@app.command(epilog="Example: ecs-plugins memory verify --db agent.db")
def verify(db: Db, as_json: JsonOption = False) -> None:
    """Check every promise of the file; exit status 1 when one is broken."""
    with _read(db) as memory:
        found = memory.admin.verify()
    _print(
        asdict(found) | {"ok": found.ok},
        as_json,
        [*found.problems, *found.warnings] or [f"{found.checked} records checked, all right"],
    )
    if not found.ok:
        raise typer.Exit(1)


@app.command(epilog="Example: ecs-plugins memory inspect --db agent.db --html memory.html")
def inspect(
    db: Db,
    item: Item = None,
    namespace: Space = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with the life of each memory.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how full a memory is, why an item is where it is, or a page of everything."""
    with _read(db) as memory:
        if html is not None:
            _write_page(memory, html, namespace)
        elif item is not None:
            explanation = memory.explain(item)
            lines = [one_line(explanation.text), *explanation.lines]
            _print(asdict(explanation), as_json, lines)
        else:
            _print(memory.admin.stats().to_dict(), as_json, _fill_lines(memory))


def _write_page(memory: EntropicMemory, html: Path, namespace: Sequence[str] | None) -> None:
    from ecs_plugins.cli import pages

    chosen = [_namespace(namespace)] if namespace else memory.namespaces()
    below = _namespace(namespace) if namespace else ()
    files.write_atomically(html, pages.memory_page(memory, chosen, below))
    typer.echo(f"{html} shows {len(chosen)} namespace(s)")


def _fill_lines(memory: EntropicMemory) -> list[str]:
    """Return the size of a memory in words, a line per namespace."""
    stats = memory.admin.stats()
    embedder = stats.embedder
    lines = [
        f"{stats.path}: {stats.bytes:,} bytes, embedder {embedder['name']} "
        f"({embedder['dimension']})"
    ]
    lines += [
        f"{'/'.join(each.namespace)}: {each.messages} messages, {each.hot} hot, "
        f"{each.cold} cold ({each.pinned} pinned), {each.sleeps} sleep phases, "
        f"{each.since_sleep} since the last"
        for each in stats.namespaces
    ]
    if stats.items:
        lines.append(f"{stats.items} key-value items")
    return lines


def _open(db: str, embedder: str | None) -> EntropicMemory:
    from ecs_plugins.memory import EntropicMemory
    from ecs_plugins.ranking.embedder import SentenceTransformerEmbedder, default_embedder

    chosen = default_embedder() if embedder is None else SentenceTransformerEmbedder(embedder)
    return EntropicMemory.open(db, embedder=chosen)


def _open_to_erase(db: str) -> EntropicMemory:
    """Open a memory with the recorded embedder, which may be missing."""
    from ecs_plugins.memory import EntropicMemory, StoreConfig
    from ecs_plugins.memory.store.embedder_record import RecordedEmbedder
    from ecs_plugins.memory.store.engines import open_engine

    _require_file(db)
    with closing(open_engine(db, StoreConfig())[0]) as database:
        embedder = RecordedEmbedder(database)
    return EntropicMemory.open(db, embedder=embedder)


def _read(db: str) -> EntropicMemory:
    from ecs_plugins.memory import EntropicMemory

    return EntropicMemory.open(db, read_only=True)


def _require_file(db: str) -> None:
    if not (is_address(db) or Path(db).is_file()):  # a question must not make the file that it asks
        raise StorageError(f"there is no memory file {db}; check the path")


def _namespace(labels: Sequence[str] | None) -> tuple[str, ...]:
    from ecs_plugins.memory.types import DEFAULT_NAMESPACE

    return tuple(labels) if labels else DEFAULT_NAMESPACE


def _recollection_line(recollection: Memory) -> str:
    """Return score, tier, id and text of a recollection."""
    text = one_line(recollection.text)
    return f"{recollection.score:.3f}  {recollection.tier:4}  {recollection.id}  {text}"


def _print(value: object, as_json: bool, lines: Sequence[str]) -> None:
    if as_json:
        typer.echo(printable(json.dumps(value, ensure_ascii=False, indent=2)))
    else:
        for line in lines:
            typer.echo(printable(line))
