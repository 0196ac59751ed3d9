"""`EntropicMemory` kept in shape: exports, another embedder, indexes, the background thread."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ecs_plugins.memory.facade.opened import Opened, bridged
from ecs_plugins.memory.namespaces import checked
from ecs_plugins.memory.store.index import Progress
from ecs_plugins.ranking.embedder import Embedder, as_embedder


class Keeping(Opened):
    """Exports, imports, re-embeds, compacts and waits."""

    def export(
        self, path: str | os.PathLike[str], *, namespace: Sequence[str] | None = None
    ) -> int:
        """Write a JSON lines file; of one namespace and what is below it, if given.

        Returns:
            How many lines.
        """
        return self._maintenance.export(path, None if namespace is None else checked(namespace))

    def import_(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> dict[str, int]:
        """Read a JSON lines file into namespaces that hold nothing yet, all of it or nothing.

        Returns:
            How many lines of each kind.

        Raises:
            InvalidInputError: It is no export, not whole, or a namespace is not empty.
        """
        return self._maintenance.import_(path, progress)

    def reembed(self, embedder: Embedder, *, progress: Progress | None = None) -> None:
        """Embed everything anew with another embedder (or the same one, after damage)."""
        self._maintenance.reembed(as_embedder(embedder), progress)

    def compact(self, *, progress: Progress | None = None) -> None:
        """Build, link and save every index that is large enough, and shrink the file."""
        self._maintenance.compact(progress)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the background thread to have nothing to do; returns whether it has."""
        return self._core.upkeep.wait(timeout)

    aexport = bridged(export)
    aimport_ = bridged(import_)
    areembed = bridged(reembed)
    acompact = bridged(compact)
    await_ = bridged(wait)
