"""Something that is loaded while a server listens already."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ecs_plugins.errors import ModelBusyError

T = TypeVar("T")


class Loading(Generic[T]):
    """What a function makes, in a thread of its own.

    Args:
        make: Makes it, such as by loading a model.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self.error: BaseException | None = None
        """Why it could not be made; None as long as nothing failed."""

    @classmethod
    def done(cls, value: T) -> Loading[T]:
        """Something that is there already."""
        loading = cls(lambda: value)
        loading._run()
        return loading

    def start(self) -> None:
        """Begin to make it."""
        threading.Thread(target=self._run, name="ecs-loading", daemon=True).start()

    @property
    def ready(self) -> bool:
        """Whether it is there."""
        return bool(self._made)

    def get(self) -> T:
        """What was made.

        Raises:
            ModelBusyError: It is not there yet.
        """
        if not self._made:
            raise ModelBusyError("the model is being loaded; try again in some seconds")
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:  # whoever runs the server raises it
            self.error = error
