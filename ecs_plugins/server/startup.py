"""Loading in a thread while a server listens already."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from ecs_plugins.errors import ModelBusyError

T = TypeVar("T")


class Loading(Generic[T]):
    """Result of a function that runs in a thread.

    Args:
        make: The function, such as one that loads a model.

    Attributes:
        error: The error of the function, if it failed.
        seconds: How long the function took.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self.error: BaseException | None = None
        self.seconds = 0.0

    @classmethod
    def done(cls, value: T) -> Loading[T]:
        """Return a finished loading of a value."""
        loading = cls(lambda: value)
        loading._run()
        return loading

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="ecs-loading", daemon=True).start()

    @property
    def ready(self) -> bool:
        """True if the function has returned."""
        return bool(self._made)

    def get(self) -> T:
        """Return the result.

        Raises:
            ModelBusyError: The function has not returned yet.
        """
        if not self._made:
            raise ModelBusyError("the model is being loaded; try again in some seconds")
        return self._made[0]

    def _run(self) -> None:
        started = time.monotonic()
        try:
            made = self._make()
            self.seconds = time.monotonic() - started
            self._made.append(made)
        except BaseException as error:  # raised where the server runs
            self.error = error
