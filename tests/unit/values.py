"""What tests of several rooms ask about value objects."""

import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module


def changeable(room: str) -> set[str]:
    """The dataclasses of a room of the package of which an object can be changed."""
    return {each.__name__ for each in dataclasses(room) if not each.__dataclass_params__.frozen}


def unslotted(room: str) -> set[str]:
    """The dataclasses of a room that would take a misspelt attribute."""
    return {each.__name__ for each in dataclasses(room) if "__slots__" not in vars(each)}


def dataclasses(room: str) -> Iterator[type]:
    package = import_module(f"ecs_plugins.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        for value in vars(module).values():
            is_own = getattr(value, "__module__", "") == module.__name__
            if is_own and isinstance(value, type) and is_dataclass(value):
                yield value
