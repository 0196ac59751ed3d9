"""Checks of the dataclasses of a subpackage."""

import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module


def changeable(subpackage: str) -> set[str]:
    """Return the names of dataclasses that are not frozen."""
    return {
        each.__name__ for each in dataclasses(subpackage) if not each.__dataclass_params__.frozen
    }


def unslotted(subpackage: str) -> set[str]:
    """Return the names of dataclasses without slots."""
    return {each.__name__ for each in dataclasses(subpackage) if "__slots__" not in vars(each)}


def dataclasses(subpackage: str) -> Iterator[type]:
    package = import_module(f"ecs_plugins.{subpackage}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        for value in vars(module).values():
            is_own = getattr(value, "__module__", "") == module.__name__
            if is_own and isinstance(value, type) and is_dataclass(value):
                yield value
