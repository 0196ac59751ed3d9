"""Lazy public faces (PEP 562): importing a package loads neither torch nor a framework.

What a package exports stands once, in the stub beside its ``__init__``; the module behind a name
is imported when the name is first used. A missing optional dependency becomes an error that names
the extra.
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
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package with an ``__init__.pyi``."""
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
