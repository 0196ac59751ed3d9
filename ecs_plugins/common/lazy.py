"""Lazy exports of packages (PEP 562): importing a package loads neither torch nor a framework.

The stub next to ``__init__`` lists the exports of a package. The module of a name is imported on
first use. A missing optional dependency raises an error that names the extra.
"""

from __future__ import annotations

from collections.abc import Callable

import lazy_loader

from ecs_plugins.errors import MissingExtraError

_EXTRAS = {
    "httpx": "serve",
    "langchain": "langchain",
    "langchain_classic": "langchain",
    "langchain_core": "langchain",
    "langgraph": "langchain",
    "llama_index": "llama-index",
}


def public_face(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package with a stub."""
    load, names, exported = lazy_loader.attach_stub(package, file)

    def get(name: str) -> object:
        try:
            return load(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing in _EXTRAS:
                raise MissingExtraError(f"{package}.{name}", missing, _EXTRAS[missing]) from error
            raise

    return get, names, exported
