"""New vectors for old texts: what `reembed` and `import_` share.

A message is embedded. A hot item or memory that merges several messages lies in the direction of
their mean, so it is the mean again if they are all in the log; else its own text is embedded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ecs_plugins.memory.store.index import Progress
from ecs_plugins.memory.store.vectors import mean_direction
from ecs_plugins.memory.types import Matrix, Vector

BATCH = 256

Embed = Callable[[Sequence[str]], Matrix]


def embedded(
    texts: Mapping[str, str], embed: Embed, progress: Progress | None = None
) -> dict[str, Vector]:
    """The vector of every text, by its key, in batches."""
    keys = list(texts)
    out: dict[str, Vector] = {}
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        out.update(zip(batch, embed([texts[key] for key in batch]), strict=True))
        if progress is not None:
            progress(min(start + BATCH, len(keys)), len(keys))
    return out


def derived(
    text: str, members: Sequence[str], of_message: Mapping[str, Vector], embed: Embed
) -> Vector:
    """The vector of an item made of several messages."""
    known = [of_message[member] for member in members if member in of_message]
    if known and len(known) == len(members):
        return mean_direction(known)
    vector: Vector = embed([text])[0]
    return vector
