"""Lazy public faces (PEP 562): importing a package loads neither torch nor a framework.

Each public ``__init__`` names what it exports and where it lives; the module behind a name is
imported on first access. A missing optional dependency becomes an error that names the extra.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from ecs_plugins.errors import MissingExtraError


def lazy_exports(
    package: str,
    exports: Mapping[str, str],
    *,
    extra: str | None = None,
    requires: tuple[str, ...] = (),
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Build the ``__getattr__`` and ``__dir__`` of a lazy package.

    Args:
        package: The package's ``__name__``.
        exports: Public name -> module below ``package`` that defines it (``".compressor"``).
        extra: The extra of this distribution that brings the optional dependencies.
        requires: Top-level modules that ``extra`` brings; when one of them is missing, the
            import error is replaced by one that names the extra.

    Returns:
        The two functions to bind as ``__getattr__`` and ``__dir__``.
    """

    def get(name: str) -> object:
        module = exports.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(module, package), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if extra is not None and missing in requires:
                raise MissingExtraError(f"{package}.{name}", missing, extra) from error
            raise

    def names() -> list[str]:
        return sorted(exports)

    return get, names
