"""A reply in pieces: what a generating thread writes, read by a Python generator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue

from ecs_plugins.lm.base import Generation
from ecs_plugins.lm.generation import Watch


def pieces(generate: Callable[[Watch], Generation]) -> Generator[str, None, Generation]:
    """Yield what is written while it is written, and return the whole.

    Args:
        generate: Writes one reply and tells a `Watch` what it says so far.

    Raises:
        Exception: Whatever ``generate`` raised.
    """
    written: SimpleQueue[str | None] = SimpleQueue()
    closed = threading.Event()
    outcome: list[Generation | BaseException] = []

    def watch(text: str) -> bool:
        written.put(text)
        return not closed.is_set()

    def run() -> None:
        try:
            outcome.append(generate(watch))
        except BaseException as error:  # handed to the reader
            outcome.append(error)
        finally:
            written.put(None)

    threading.Thread(target=run, name="ecs-plugins-stream", daemon=True).start()
    said = ""
    try:
        while (text := written.get()) is not None:
            if len(text) > len(said):
                piece, said = text[len(said) :], text
                yield piece
    finally:
        closed.set()
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    if len(result.text) > len(said):
        yield result.text[len(said) :]
    return result
