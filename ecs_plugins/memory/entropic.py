"""`EntropicMemory`: a bounded memory in one file that accounts for every decision.

A message is logged and stands in the hot tier at once; sleep phases consolidate the hot tier into
the cold tier, where memories compete by free energy (Entropic Memory, section 2 and A.1). What is
bounded is what is searched, hot and cold; the message log has its own retention.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.facade.changing import Changing
from ecs_plugins.memory.facade.consolidating import Consolidating
from ecs_plugins.memory.facade.keeping import Keeping
from ecs_plugins.memory.facade.looking import Looking
from ecs_plugins.memory.facade.opened import bridged
from ecs_plugins.memory.facade.remembering import Remembering
from ecs_plugins.memory.store.core import Core
from ecs_plugins.memory.store.database import MEMORY, Database
from ecs_plugins.memory.store.index import Progress
from ecs_plugins.memory.store.recorded import RecordedEmbedder
from ecs_plugins.memory.store.store_config import StoreConfig
from ecs_plugins.memory.types import UtilityFunction
from ecs_plugins.ranking.embedder import Embedder, as_embedder, default_embedder

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel


class EntropicMemory(Remembering, Consolidating, Looking, Changing, Keeping):
    """A bounded long-term memory. Thread-safe; several processes may use one file.

    Every method that computes or waits has an async form with an ``a`` before its name.

    Example:
        >>> from ecs_plugins.ranking.embedder import FakeEmbedder
        >>> with EntropicMemory.open(":memory:", embedder=FakeEmbedder()) as memory:
        ...     _ = memory.add("Ada lives in Paris.")
        ...     memory.recall("Ada lives where?", threshold=0.3)[0].text
        'Ada lives in Paris.'
    """

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = MEMORY,
        *,
        embedder: Embedder | None = None,
        model: LanguageModel | None = None,
        config: MemoryConfig | None = None,
        store: StoreConfig | None = None,
        utility: UtilityFunction | None = None,
        reembed: bool = False,
        progress: Progress | None = None,
    ) -> EntropicMemory:
        """Open a memory file, made if it is new, upgraded if it is old.

        Args:
            path: The file, or ``":memory:"``.
            embedder: Anything that `as_embedder` takes; None is the default embedder.
            model: Writes summaries, for ``MemoryConfig(proposal="summary")``.
            config: What is kept; it may differ from the one the file was used with before.
            store: How it is stored and run.
            utility: Replaces the configured utility, e.g. ``answer_utility(model)``.
            reembed: If the file was written with another embedder, embed everything anew.
            progress: Called with texts done and texts to do while re-embedding.

        Raises:
            ConfigurationError: Another embedder, or summaries without a model.
            StorageError: The file cannot be opened, is no memory file, or is of a newer version.
        """
        config, store = config or MemoryConfig(), store or StoreConfig()
        if config.proposal == "summary" and model is None:
            raise ConfigurationError('proposal="summary" needs a language model: pass model=')
        embedder = default_embedder() if embedder is None else as_embedder(embedder)
        database = Database(path, synchronous=store.synchronous, busy_timeout=store.busy_timeout)
        try:
            core = Core(database, embedder, config, store, model, utility, adopt=reembed)
            memory = cls(core)
            if reembed and not core.is_current():
                memory._maintenance.reembed(embedder, progress)
        except BaseException:
            database.close()
            raise
        return memory

    @classmethod
    def inspect(
        cls, path: str | os.PathLike[str], *, config: MemoryConfig | None = None
    ) -> EntropicMemory:
        """Open an existing file without its embedder, for all that embeds nothing.

        Raises:
            StorageError: There is no such file.
        """
        if not Path(path).is_file():
            raise StorageError(f"there is no memory file {path}; check the path")
        database = Database(path)
        try:
            return cls.open(path, embedder=RecordedEmbedder.of(database), config=config)
        finally:
            database.close()

    def close(self) -> None:
        """Write what is pending and the index snapshots, and close the file."""
        self._core.close()

    def __enter__(self) -> EntropicMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    aclose = bridged(close)
