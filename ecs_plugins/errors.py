"""Errors of this package. Every message says how to fix the cause.

Each class also derives from a fitting built-in error, so ``except ValueError`` catches it too.
"""

from __future__ import annotations


class EcsPluginsError(Exception):
    """Base class of every error raised by this package."""


class InvalidInputError(EcsPluginsError, ValueError):
    """An argument is invalid; nothing was computed or written."""


class QuotaError(InvalidInputError):
    """A namespace has reached its quota; nothing was written."""


class ConfigurationError(EcsPluginsError, ValueError):
    """A configuration is inconsistent or out of range."""


class MissingExtraError(EcsPluginsError, ImportError):
    """An optional dependency is not installed.

    Args:
        feature: Part of the package that needs it.
        module: Name of the missing module.
        extra: The extra that installs it; None if the module's own package does.
    """

    def __init__(self, feature: str, module: str, extra: str | None = None) -> None:
        package = module
        if extra is not None:
            package = f'"ecs-plugins[{extra}]" (in a checkout ".[{extra}]")'
        super().__init__(
            f"{feature} needs {module!r}, which is not installed. "
            f"Install it with: pip install {package}"
        )
        self.module = module
        self.extra = extra

    def __reduce__(self) -> tuple[type[ImportError], tuple[str]]:
        return (ImportError, (str(self),))


class ModelError(EcsPluginsError, RuntimeError):
    """The language model or the embedder could not be loaded or could not compute."""


class ModelNotFoundError(ModelError):
    """The model is not on this machine; the package downloads nothing by itself."""


class ScoringError(ModelError):
    """Scores of a loaded model cannot be computed or trusted."""


class ModelBusyError(ModelError):
    """Too many calls wait for the model; try again later."""


class ModelTimeoutError(ModelError, TimeoutError):
    """The model did not answer before the deadline."""


class StorageError(EcsPluginsError, OSError):
    """A file, cache or database could not be read or written."""
