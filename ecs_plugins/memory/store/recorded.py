"""The embedder that a file was written with, by name only: for all that embeds nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.memory.store.database import Database
from ecs_plugins.memory.types import Matrix, Vector


class RecordedEmbedder:
    """Has the name and dimension of the real one, and refuses to embed.

    Args:
        name: As recorded.
        dimension: As recorded.
    """

    def __init__(self, name: str, dimension: int) -> None:
        self.name = name
        self.dimension = dimension

    @classmethod
    def of(cls, database: Database) -> RecordedEmbedder:
        """What a file recorded.

        Raises:
            StorageError: Nothing was ever stored in it.
        """
        with database.read() as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'embedder'").fetchone()
        if row is None:
            raise StorageError(f"{database.path} holds no memory yet; add something first")
        recorded = json.loads(row[0])
        return cls(str(recorded["name"]), int(recorded["dimension"]))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Refuse."""
        raise ConfigurationError(self._message(len(texts)))

    def embed_query(self, text: str) -> Vector:
        """Refuse."""
        raise ConfigurationError(self._message(1 if text else 0))

    def _message(self, count: int) -> str:
        return f"{count} texts need the embedder {self.name!r}; open the memory with it"
