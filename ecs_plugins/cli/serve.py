"""``ecs-plugins serve`` and ``ecs-plugins mcp``: the engines for other software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ecs_plugins.cli.model import DeviceOption, DtypeOption, ModelOption, load_model
from ecs_plugins.common import files
from ecs_plugins.errors import MissingExtraError

if TYPE_CHECKING:
    from ecs_plugins.shaping import ContextShaper

SERVE_HELP = """Serve a rerank endpoint: one model for many processes and languages.

It also attributes answers to documents, at /v1/attribute.

\b
  ecs-plugins serve --port 8080
  curl localhost:8080/v1/rerank -H 'content-type: application/json' \\
    -d '{"query": "When does the boat go?",
         "documents": ["The ferry leaves at nine.", "Gulls nest here."]}'

Clients of Cohere, Jina and TEI work with it: set their base URL. It answers this
machine alone until --tokens names a file with a name and a token per line, which
clients send as "Authorization: Bearer TOKEN". The port opens before the model is
loaded: /ready tells when it is.
"""
MCP_HELP = """Serve a memory and context shaping as MCP tools.

The tools are remember, recall, update, forget, explain, shape and check.

Over stdio, for one client that starts it itself:

\b
  {"mcpServers": {"memory": {"command": "ecs-plugins",
                             "args": ["mcp", "--db", "agent.db"]}}}

Over HTTP, for many clients, each with a token and a namespace of its own:

\b
  ecs-plugins mcp --db agents.db --transport http --tokens tokens.txt \\
    --host 0.0.0.0 --allow-host memory.example.org
"""

PLAY_HELP = """Open a local page to play with.

Paste passages and a question, or look into a memory. It answers this machine alone.

\b
  ecs-plugins play
  ecs-plugins play --passages notes.txt --db agent.db
"""

Host = Annotated[str, typer.Option(help="Address to listen to.")]
Port = Annotated[int, typer.Option(help="Port to listen to; 0 is any free one.", min=0, max=65535)]
Tokens = Annotated[
    Path | None, typer.Option("--tokens", help="A file with a client's name and token per line.")
]


AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", help="A name by which it is called, without a port; repeat it for more."
    ),
]
MaxWaiting = Annotated[
    int, typer.Option(help="Requests at once; one more is answered with 503.", min=1)
]
RequestTimeout = Annotated[
    float, typer.Option(help="Seconds that an answer may take; a later one is 504.", min=0.1)
]


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    tokens: Tokens = None,
    allow_host: AllowHost = None,
    max_waiting: MaxWaiting = 256,
    request_timeout: RequestTimeout = 60.0,
    pool_size: Annotated[
        int, typer.Option(help="Documents that the model scores; the others only rank.", min=1)
    ] = 40,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """See `SERVE_HELP`, which the command line shows."""
    with _extra("serve"):
        from ecs_plugins.server.rerank import rerank_app
        from ecs_plugins.server.running import Loading, run
        from ecs_plugins.server.service import Bounds
    from ecs_plugins.ranking.embedder import default_embedder
    from ecs_plugins.shaping import ContextShaper, ShapingConfig

    clients = _clients(host, tokens)

    def shaper() -> ContextShaper:
        scorer = load_model(model, device=device, dtype=dtype)
        default_embedder().embed_query("ready")  # loaded now, and not by the first request
        return ContextShaper(scorer, ShapingConfig(pool_size=pool_size))

    loading = Loading(shaper)
    app = rerank_app(
        loading,
        tokens=clients,
        hosts=allow_host or (),
        bounds=Bounds(requests=max_waiting, seconds=request_timeout),
    )
    run(app, host, port, loading)


def play(
    port: Port = 8082,
    passages: Annotated[
        Path | None, typer.Option(help="A file of passages to begin with.", dir_okay=False)
    ] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", help="A memory file, made if it is new, or a postgresql:// address."),
    ] = None,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """See `PLAY_HELP`, which the command line shows."""
    with _extra("play"):
        from ecs_plugins.cli.play import Played, play_app
        from ecs_plugins.server.running import run
    from ecs_plugins.memory import EntropicMemory
    from ecs_plugins.shaping import ContextShaper
    from ecs_plugins.storage.addresses import is_address

    @cache
    def shaper() -> ContextShaper:
        return ContextShaper(load_model(model, device=device, dtype=dtype))

    text = "" if passages is None else files.read_text(passages)
    with ExitStack() as opened:
        memory = None
        if db is not None:
            if not (is_address(db) or Path(db).exists()):
                EntropicMemory.open(db).close()
            memory = opened.enter_context(EntropicMemory.open(db, read_only=True))
        typer.echo(f"http://localhost:{port}")
        run(play_app(Played(shaper, memory, text)), "127.0.0.1", port)


def mcp(
    db: Annotated[
        str,
        typer.Option(
            "--db", help="The memory file, or a postgresql:// address.", show_default=False
        ),
    ],
    transport: Annotated[
        Literal["stdio", "http"], typer.Option(help="stdio for one client, http for many.")
    ] = "stdio",
    client: Annotated[str, typer.Option(help="Name of the client over stdio.")] = "local",
    host: Host = "127.0.0.1",
    port: Port = 8081,
    tokens: Tokens = None,
    allow_host: AllowHost = None,
    max_waiting: MaxWaiting = 256,
    request_timeout: RequestTimeout = 60.0,
    max_items: Annotated[
        int, typer.Option(help="Statements that a client may have remembered.", min=1)
    ] = 10_000,
    max_bytes: Annotated[int, typer.Option(help="Bytes of these and their speakers.", min=1)] = 16
    << 20,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """See `MCP_HELP`, which the command line shows."""
    with _extra("mcp"):
        from ecs_plugins.server.running import run
        from ecs_plugins.server.service import Bounds
        from ecs_plugins.server.tools import mcp_app, mcp_server
        from ecs_plugins.server.turns import Turns
    from ecs_plugins.memory import EntropicMemory, StoreConfig
    from ecs_plugins.shaping import ContextShaper

    clients = _clients(host, tokens)
    quota = StoreConfig(max_messages=max_items, max_bytes=max_bytes)

    @cache
    def shaper() -> ContextShaper:
        return ContextShaper(load_model(model, device=device, dtype=dtype))

    with EntropicMemory.open(db, store=quota) as memory:
        if transport == "stdio":
            mcp_server(memory, shaper, client=client).run("stdio")
            return
        turns = Turns()
        app = mcp_app(
            mcp_server(memory, shaper, turns=turns),
            clients,
            hosts=allow_host or (),
            bounds=Bounds(requests=max_waiting, seconds=request_timeout),
            turns=turns,
        )
        run(app, host, port)


def _clients(host: str, tokens: Path | None) -> Mapping[str, str] | None:
    from ecs_plugins.server.access import check_host, read_tokens

    clients = None if tokens is None else read_tokens(tokens)
    check_host(host, clients)
    return clients


@contextmanager
def _extra(command: str) -> Iterator[None]:
    """Name the extra where a module of it is missing."""
    try:
        yield
        import uvicorn  # noqa: F401
    except ImportError as error:
        name = error.name or "uvicorn"
        raise MissingExtraError(f"ecs-plugins {command}", name, "serve") from error
