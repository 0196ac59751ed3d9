"""``ecs-plugins play``: a local page to paste passages into, and look into a memory.

Plain forms and pages: no script runs, nothing is fetched. The page answers only requests of this
machine to localhost names, and checks requests like the other servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from ecs_plugins.cli.pages import Coloured, coloured, life_of, ordered
from ecs_plugins.common.rendering import rendered
from ecs_plugins.errors import EcsPluginsError, InvalidInputError
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.types import Namespace
from ecs_plugins.server.access import Callers
from ecs_plugins.server.service import Bounds, Service
from ecs_plugins.server.turns import Turns
from ecs_plugins.shaping import Attribution, ContextShaper, ShapedContext
from ecs_plugins.shaping.attribution.attributed import checked_pieces

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "Cache-Control": "no-store",
}
MOST_PASSAGES = 200
"""Passages of one page: more is a file for ``ecs-plugins shape``."""

Form = Mapping[str, str]


@dataclass(frozen=True)
class Played:
    """Engines that the pages use.

    Attributes:
        shaper: Function that returns the shaper; it loads on first use.
        memory: A memory to look into; None shows how to open one.
        passages: Text in the form when the page is opened.
    """

    shaper: Callable[[], ContextShaper]
    memory: EntropicMemory | None = None
    passages: str = ""


def play_app(played: Played, bounds: Bounds | None = None) -> Service:
    """Return the pages as an ASGI application that answers only this machine."""

    async def shape(request: Request) -> HTMLResponse:
        form = await form_of(request)
        return await run_in_threadpool(answered, "play_shape.html.j2", form, played, shape_values)

    async def memory(request: Request) -> HTMLResponse:
        form = dict(request.query_params)
        return await run_in_threadpool(answered, "play_memory.html.j2", form, played, memory_values)

    routes = [Route("/", shape, methods=["GET", "POST"]), Route("/memory", memory)]
    app = Starlette(routes=routes)
    return Service(app, "play", Callers(), bounds or Bounds(seconds=600.0), Turns())


async def form_of(request: Request) -> Form:
    """Return the fields of a form; empty when the page is opened."""
    body = (await request.body()).decode("utf-8", errors="replace")
    return {name: values[-1] for name, values in parse_qs(body).items()}


def answered(
    template: str,
    form: Form,
    played: Played,
    values: Callable[[Form, Played], Mapping[str, object]],
) -> HTMLResponse:
    """Return the page that a form asks for; an error is shown on it."""
    error = ""
    found: Mapping[str, object] = {}
    try:
        found = values(form, played)
    except EcsPluginsError as fault:
        error = str(fault)
    page = rendered(template, "ecs-plugins play", **{"form": form, "error": error, **found})
    return HTMLResponse(page, status_code=422 if error else 200, headers=HEADERS)


def shape_values(form: Form, played: Played) -> Mapping[str, object]:
    """Return the shaped passages, coloured, and the citations of an answer."""
    if not form:
        return {"form": {"passages": played.passages}}
    question = form.get("question", "").strip()
    passages = passages_of(form.get("passages", ""))
    if not question or not passages:
        return {}
    keep = number(form, "top_k", 3)
    plain = played.shaper()
    shaper = ContextShaper(plain.model, plain.config.replace(top_k=keep))
    shaped = shaper.shape(question, passages)
    sentences: Coloured = coloured(shaper, shaped)
    attribution = cited(shaper, shaped, form.get("answer", "").strip())
    return {
        "shaped": shaped,
        "order": ordered(shaped),
        "sentences": sentences,
        "cited": attribution,
        "checked": checked_pieces(attribution.answer, attribution.statements)
        if attribution
        else (),
    }


def cited(shaper: ContextShaper, shaped: ShapedContext, answer: str) -> Attribution | None:
    """Return the citations of an answer among all passages; None without an answer."""
    if not answer:
        return None
    passages = [verdict.text for verdict in shaped.verdicts]
    return shaper.attribute(shaped.query, passages, answer)


def passages_of(text: str) -> list[str]:
    """Return the parts between blank lines, or all lines if there are none.

    Raises:
        InvalidInputError: There are more than `MOST_PASSAGES`.
    """
    plain = text.replace("\r\n", "\n").strip()
    parts = plain.split("\n\n") if "\n\n" in plain else plain.splitlines()
    passages = [part.strip() for part in parts if part.strip()]
    if len(passages) > MOST_PASSAGES:
        raise InvalidInputError(
            f"{len(passages)} passages; this page takes {MOST_PASSAGES}, `ecs-plugins shape` more"
        )
    return passages


def memory_values(form: Form, played: Played) -> Mapping[str, object]:
    """Return the namespaces, the timeline of the chosen one, and the answers to a question."""
    memory = played.memory
    if memory is None:
        return {}
    spaces = [each.namespace for each in memory.admin.stats().namespaces]
    names = [" / ".join(space) for space in spaces]
    chosen = form.get("namespace", names[0] if names else "")
    if chosen not in names:
        return {"names": names, "opened": True}
    space: Namespace = spaces[names.index(chosen)]
    question = form.get("question", "").strip()
    found: list[Memory] = []
    if question:
        found = memory.recall(question, namespace=space, threshold=0, record=False)
    life = life_of(memory, space)
    return {"names": names, "opened": True, "chosen": chosen, "found": found, **life}


def number(form: Form, name: str, default: int) -> int:
    """Return a whole number of a form, at least 0.

    Raises:
        InvalidInputError: It is something else.
    """
    given = form.get(name, "").strip()
    if not given:
        return default
    if not given.isascii() or not given.isdigit():
        raise InvalidInputError(f"{name} is a whole number, and not {given!r:.40}")
    return int(given)
