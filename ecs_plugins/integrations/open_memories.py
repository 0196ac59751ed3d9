"""Memories by path, one per file and process: what serialised integrations hold on to.

An object that is written down as a path finds the memory that this process has open already,
with its embedder and settings; else the file is opened with the defaults, and closed at exit.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.memory.entropic import EntropicMemory

_lock = threading.Lock()
_known: weakref.WeakValueDictionary[str, EntropicMemory] = weakref.WeakValueDictionary()
_opened: list[EntropicMemory] = []


def _key(path: str | os.PathLike[str]) -> str:
    if os.fspath(path) == ":memory:":
        raise ConfigurationError(
            "a memory without a file cannot be found again by its path; open it with a path"
        )
    return os.path.realpath(path)


def known(memory: EntropicMemory) -> str:
    """Make an open memory known by its path; returns the path.

    Raises:
        ConfigurationError: It has no file.
    """
    key = _key(memory.path)
    with _lock:
        _known[key] = memory
    return key


def shared(path: str | os.PathLike[str]) -> EntropicMemory:
    """The open memory of a path, opened with the default embedder and settings if need be.

    Raises:
        ConfigurationError: It has no file, or was written with another embedder: open it with
            that one, and make it known, first.
        StorageError: The file cannot be opened.
    """
    key = _key(path)
    with _lock:
        found = _known.get(key)
        if found is None or found.closed:
            found = EntropicMemory.open(key)
            _known[key] = found
            _opened.append(found)
        return found


@atexit.register
def _close() -> None:
    for memory in _opened:
        memory.close()
