"""Notices when a model is no longer what it was when it was looked at last.

A fast path runs a twin of the model, and later questions use keys and values that were kept:
both are wrong once somebody changes the model. What is compared:

* of every module and every configuration, its attributes: adapters that are switched, hooks,
  ``self_attn.scaling = ...``, a module or a weight that takes another's place;
* of every weight and every buffer, where it lies, how often torch wrote to it, and one number of
  each of its rows, because writing to ``weight.data`` is not counted.

Two things cannot be seen from here. What a hook does may change without a trace, so nothing is
kept between calls while there are hooks. Single numbers written through ``.data`` are missed unless
they are among those looked at: whoever writes them calls ``LocalLM.clear_cache()``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
"""Attributes of a module that hold its hooks; torch has the same with ``_global`` before them."""


_DEEP = 4
"""Containers within containers that are looked into; attributes are the first of them."""


class Change(Enum):
    """What became of a model."""

    NONE = "none"
    NUMBERS = "numbers"
    """Its weights or buffers hold other numbers."""
    STRUCTURE = "structure"
    """It computes something else: modules, adapters, hooks, settings."""


class ModelWatch:
    """What a model was like when it was looked at last."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._look_anew()

    def look(self) -> Change:
        """What has changed since the last look."""
        if not self._structure.holds():
            self._look_anew()
            return Change.STRUCTURE
        new_weights = self._weights.have_changed()
        new_buffers = self._buffers.have_changed()
        return Change.NUMBERS if new_weights or new_buffers else Change.NONE

    def settle(self) -> None:
        """Take for granted what a call has changed, where a model takes notes while it runs."""
        if not self._structure.holds():
            self._look_anew()
        self._buffers.have_changed()

    @property
    def has_hooks(self) -> bool:
        """Whether a hook stood anywhere at the last look."""
        return self._structure.has_hooks

    def _look_anew(self) -> None:
        self._structure = _Structure(self._model)
        self._weights = _Numbers(self._model.parameters())
        self._buffers = _Numbers(self._model.buffers())


class _Structure:
    """The attributes of all modules and configurations of a model."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        configurations = {id(config): config for config in _configurations_of(modules)}
        owners: list[object] = [*modules, *configurations.values()]
        self._attributes = [(owner, _copied(vars(owner))) for owner in owners]
        self._global_hooks = _global_hooks()
        self.has_hooks = bool(hooks_of(model))

    def holds(self) -> bool:
        """Whether all of them are still the same."""
        try:
            unchanged = all(vars(owner) == copied for owner, copied in self._attributes)
        except (RuntimeError, ValueError):  # other tensors or arrays, which are not simply unequal
            return False
        return unchanged and self._global_hooks == _global_hooks()


class _Numbers:
    """Places, versions, and one number of each row of some tensors."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors = [tensor for tensor in tensors if not tensor.is_meta]
        self._places: list[tuple[int, int]] = []
        self._drawn: list[list[Tensor]] = []
        self._rows: list[Tensor] = []
        self._read_anew()

    def have_changed(self) -> bool:
        """Whether they are others than when they were read last."""
        if self._places != self._places_now():
            self._read_anew()
            return True
        rows = self._rows_now()
        pairs = zip(self._rows, rows, strict=True)
        unchanged = all(torch.equal(before, now) for before, now in pairs)
        self._rows = rows
        return not unchanged

    def _read_anew(self) -> None:
        self._places = self._places_now()
        drawn: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for tensor in self._tensors:
            kind = (tensor.device, tensor.dtype)
            drawn.setdefault(kind, []).append(_one_of_each_row(tensor))
        self._drawn = list(drawn.values())
        self._rows = self._rows_now()

    def _places_now(self) -> list[tuple[int, int]]:
        return [(tensor.data_ptr(), _version_of(tensor)) for tensor in self._tensors]

    def _rows_now(self) -> list[Tensor]:
        # As bytes, because what is not a number differs from itself.
        return [torch.cat(views).view(torch.uint8) for views in self._drawn]


def hooks_of(model: nn.Module) -> list[object]:
    """All hooks that run when a model does."""
    hooks: list[object] = []
    for module in model.modules():
        for name in _HOOKS:
            hooks.extend(getattr(module, name).values())
    for attributes in _global_hooks():
        hooks.extend(attributes.values())
    return hooks


def _global_hooks() -> list[dict[int, Any]]:
    return [dict(getattr(torch_modules, f"_global{name}")) for name in _HOOKS]


def _configurations_of(modules: Iterable[nn.Module]) -> Iterable[object]:
    for module in modules:
        config = getattr(module, "config", None)
        if hasattr(config, "to_dict"):
            yield config


def _version_of(tensor: Tensor) -> int:
    """How often torch wrote to it; it does not count for tensors made in inference mode."""
    return 0 if tensor.is_inference() else tensor._version


def _one_of_each_row(tensor: Tensor) -> Tensor:
    """A view of one number of each row; all of them if there are no rows."""
    numbers = tensor.detach()
    if numbers.ndim == 0:
        return numbers.unsqueeze(0)
    if numbers.ndim > 1:
        numbers = numbers[..., numbers.shape[-1] // 2]
    return numbers.flatten()


def _copied(value: Any, depth: int = _DEEP) -> Any:
    """Containers as they are now, and what they contain; everything else is itself."""
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: _copied(inner, depth - 1) for key, inner in value.items()}
    if type(value) is list:
        return [_copied(inner, depth - 1) for inner in value]
    if type(value) is set:
        return set(value)
    return value
