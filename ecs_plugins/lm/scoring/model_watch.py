"""Detection of changes to a model between two calls.

A fast path runs a twin of the model, and later questions use keys and values of earlier calls:
both are wrong once the model changes. Compared are:

* the attributes of every module and configuration, and the ``forward`` of every class: adapters,
  hooks, ``self_attn.scaling = ...``, a replaced module or weight;
* the address of every weight and buffer, and how often torch wrote to it.

Two changes cannot be seen from here. A hook may change its effect without a trace, so nothing is
kept between calls while there are hooks. torch does not count writes through ``weight.data``: after
these call ``LocalLM.clear_cache()``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
"""Attributes of a module that hold its hooks; torch has the same with ``_global`` before them."""

_DEEP = 4
"""Depth of nested containers that are copied; attributes are the first level."""


class Change(Enum):
    """Kind of change of a model."""

    NONE = "none"
    NUMBERS = "numbers"
    """Weights or buffers hold other numbers."""
    STRUCTURE = "structure"
    """Modules, adapters, hooks or settings differ."""


class ModelWatch:
    """State of a model at the last look: its structure, and the places of its numbers."""

    _weight_places: list[tuple[int, int]]
    _buffer_places: list[tuple[int, int]]

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._look_anew()

    def look(self) -> Change:
        """Return the change since the last look."""
        if self._is_restructured():
            self._look_anew()
            return Change.STRUCTURE
        before = self._weight_places, self._buffer_places
        self._weight_places = _places_of(self._weights)
        self._buffer_places = _places_of(self._buffers)
        after = self._weight_places, self._buffer_places
        return Change.NONE if before == after else Change.NUMBERS

    def settle(self) -> None:
        """Accept the changes of a call; some models store values while they run."""
        if self._is_restructured():
            self._look_anew()
        self._buffer_places = _places_of(self._buffers)

    def _look_anew(self) -> None:
        modules = list(self._model.modules())
        configurations = {id(config): config for config in _configurations_of(modules)}
        owners: list[object] = [*modules, *configurations.values()]
        self._attributes = [(owner, _copied(vars(owner))) for owner in owners]
        self._forwards = {kind: _forward_of(kind) for kind in map(type, modules)}
        self._hooks = _global_hooks()
        self.has_hooks = bool(hooks_of(self._model))
        """True if there was a hook at the last look."""
        self._weights = list(self._model.parameters())
        self._buffers = list(self._model.buffers())
        self._weight_places = _places_of(self._weights)
        self._buffer_places = _places_of(self._buffers)

    def _is_restructured(self) -> bool:
        try:
            unchanged = all(vars(owner) == copied for owner, copied in self._attributes)
        except (RuntimeError, ValueError):  # other tensors or arrays, which are not simply unequal
            return True
        same_code = all(_forward_of(kind) is code for kind, code in self._forwards.items())
        return not unchanged or not same_code or self._hooks != _global_hooks()


def _places_of(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Return address and version of tensors; torch counts no versions in inference mode."""
    return [
        (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors
    ]


def hooks_of(model: nn.Module) -> list[object]:
    """Return all hooks that run when a model does."""
    hooks: list[object] = []
    for module in model.modules():
        for name in _HOOKS:
            hooks.extend(getattr(module, name).values())
    for attributes in _global_hooks():
        hooks.extend(attributes.values())
    return hooks


def _forward_of(kind: type[nn.Module]) -> object:
    """Return the code of a class of modules."""
    return kind.forward


def _global_hooks() -> list[dict[int, Any]]:
    return [dict(getattr(torch_modules, f"_global{name}")) for name in _HOOKS]


def _configurations_of(modules: Iterable[nn.Module]) -> Iterable[object]:
    for module in modules:
        config = getattr(module, "config", None)
        if hasattr(config, "to_dict"):
            yield config


def _copied(value: Any, depth: int = _DEEP) -> Any:
    """Copy nested containers; return any other value itself."""
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: _copied(inner, depth - 1) for key, inner in value.items()}
    if type(value) is list:
        return [_copied(inner, depth - 1) for inner in value]
    if type(value) is set:
        return set(value)
    return value
