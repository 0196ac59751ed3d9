"""Limits of a model for sharing a prefix, by its configuration and device.

A wrong shortcut raises nothing, it returns wrong numbers: a sliding window that is ignored, a
bias by key index that does not know of restarted positions, a rotary scaling that depends on
the longest position of a call. Each is named here, with the length from which it matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_UNKNOWN_WINDOW = 32768
_MASKED_ATTENTION = {"eager", "sdpa"}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_NAMES_A_LENGTH = re.compile(
    r"window|local|chunk|original_max|floor|top_?k|block_size|stride|distance|extent",
)
_NAMES_NO_LENGTH = re.compile(r"expert|moe|group|layer|feed_forward|patch|conv")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason not to take a path for prompts longer than ``beyond`` tokens."""

    reason: str
    beyond: int = 0


class ScoringPath(StrEnum):
    """The ways to one result."""

    CASCADE = "cascade"
    VARLEN = "varlen"
    MASKED = "masked"
    PADDED = "padded"
    REFERENCE = "reference"


PACKED = (ScoringPath.CASCADE, ScoringPath.VARLEN, ScoringPath.MASKED)
"""Paths that compute shared parts of prompts once."""

PATHS: Mapping[str, Sequence[ScoringPath]] = {
    "cpu": (ScoringPath.CASCADE, ScoringPath.MASKED, ScoringPath.PADDED),
    "cuda": (ScoringPath.VARLEN, ScoringPath.MASKED, ScoringPath.PADDED),
}
"""Paths by kind of device, fastest first; the reference comes last.

A processor wants small dense blocks that stay in its cache: a cascade. A card wants few kernels:
one per layer for all passages.
"""

_ELSEWHERE = (ScoringPath.MASKED, ScoringPath.PADDED)
"""Paths of other devices, which were not measured: the model's own attention."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Facts of a model for the planner.

    Attributes:
        window: The longest prompt that the model takes, in tokens.
        obstacles: Reasons against each path.
        thresholds: Lengths that the configuration names, ascending; the model may compute
            differently where a prompt, or a packed row, becomes longer.
        pads_on_the_left: True if prompts of different lengths can be generated from together;
            recurrent states and key-counting biases see the padding.
        paths: Paths to try, fastest first.
    """

    window: int
    obstacles: Mapping[ScoringPath, Sequence[Obstacle]]
    pads_on_the_left: bool = True
    thresholds: Sequence[int] = ()
    paths: Sequence[ScoringPath] = PATHS["cpu"]

    def room(self, path: ScoringPath) -> int:
        """Return the tokens of the longest prompt for which a path has no obstacle."""
        obstacles = self.obstacles.get(path, ())
        ends = [obstacle.beyond for obstacle in obstacles]
        return min([self.window, *ends])

    def against(self, path: ScoringPath, length: int) -> str | None:
        """Return the reason against a path for prompts of a length; None if there is none."""
        for obstacle in self.obstacles.get(path, ()):
            if length > obstacle.beyond:
                return obstacle.reason
        return None


def profile_of(
    model: PreTrainedModel,
    takes: frozenset[str],
    tokenizer_limit: int,
) -> ModelProfile:
    """Read a loaded model's configuration.

    Args:
        model: The model.
        takes: Names of its forward's arguments.
        tokenizer_limit: The tokenizer's ``model_max_length``, used if the model names no window.
    """
    config = model.config.get_text_config()
    sharing = [*_layers(model, config), *_positions(config, takes)]
    rope = _rope(config)
    planned = [*sharing, *_plan(model, takes), *rope]
    lengths = {length for length in _lengths(config.to_dict()) if length > 1}
    return ModelProfile(
        window=_window(config, tokenizer_limit),
        obstacles={
            ScoringPath.CASCADE: planned,
            ScoringPath.VARLEN: planned,
            ScoringPath.MASKED: [*sharing, *_mask(model, config, takes), *rope],
            ScoringPath.PADDED: [*_indexed(config), *rope],
        },
        pads_on_the_left=all(obstacle.beyond for obstacle in sharing),
        thresholds=sorted(lengths),
        paths=PATHS.get(model.device.type, _ELSEWHERE),
    )


def _lengths(
    value: Any,
    name: str = "",
) -> Iterator[int]:
    """Yield every number of a configuration, at any depth, that has the name of a length."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _lengths(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _lengths(inner, name)
    elif _names_a_length(name) and _is_whole(value):
        yield int(value)


def _names_a_length(name: str) -> bool:
    return bool(_NAMES_A_LENGTH.search(name)) and not _NAMES_NO_LENGTH.search(name)


def _is_whole(value: Any) -> bool:
    """Return True if a value is a whole number and not a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == value // 1


def _window(config: Any, tokenizer_limit: int) -> int:
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return tokenizer_limit if tokenizer_limit < 10**9 else _UNKNOWN_WINDOW


def _layers(model: PreTrainedModel, config: Any) -> list[Obstacle]:
    out: list[Obstacle] = []
    if getattr(model, "_is_stateful", False):
        out.append(Obstacle("its layers carry a recurrent state"))
    types = set(getattr(config, "layer_types", None) or ())
    unknown = types - {_FULL, _SLIDING}
    others = sorted(str(kind) for kind in unknown)
    if others:
        out.append(Obstacle(f"it has layers of type {', '.join(others)}"))
    window = getattr(config, "sliding_window", None)
    slides = _SLIDING in types if types else getattr(config, "use_sliding_window", True)
    if isinstance(window, int) and slides:
        out.append(Obstacle(f"its attention slides over a window of {window} tokens", window))
    chunk = getattr(config, "attention_chunk_size", None)
    if isinstance(chunk, int):
        out.append(Obstacle(f"its attention is cut into chunks of {chunk} tokens", chunk))
    return out


def _indexed(config: Any) -> list[Obstacle]:
    """Return obstacles of attention to the best keys alone; ties depend on the batch."""
    out = []
    for name in ("index_topk", "keep_window_size"):
        kept = getattr(config, name, None)
        if isinstance(kept, int):
            reason = f"its attention keeps the best {kept} keys, and ties fall by batch"
            out.append(Obstacle(reason, kept))
    return out


def _positions(
    config: Any,
    takes: frozenset[str],
) -> list[Obstacle]:
    inner = getattr(config, "attn_config", None)
    alibi = any(getattr(each, "alibi", False) for each in (config, inner))
    if alibi or config.model_type == "bloom":
        return [Obstacle("its ALiBi bias counts keys, not positions")]
    if "position_ids" not in takes:
        return [Obstacle("its positions cannot be set")]
    return []


def _plan(
    model: PreTrainedModel,
    takes: frozenset[str],
) -> list[Obstacle]:
    places = set(getattr(model, "hf_device_map", {}).values())
    return _obstacles(
        {
            "its attention cannot be replaced": not model._supports_attention_backend,
            "it computes the logits of every row": "logits_to_keep" not in takes,
            "it is spread over several devices": len(places) > 1,
        }
    )


def _mask(
    model: PreTrainedModel,
    config: Any,
    takes: frozenset[str],
) -> list[Obstacle]:
    kind = str(getattr(model.config, "_attn_implementation", None) or "eager")
    local = "local" in str(getattr(config, "attention_types", None))
    takes_mask = kind in _MASKED_ATTENTION
    return _obstacles(
        {
            "its local attention counts keys, not positions": local,
            "it has no key-value cache": "past_key_values" not in takes,
            f"its attention implementation {kind!r} takes no tree mask": not takes_mask,
        }
    )


def _obstacles(reasons: Mapping[str, bool]) -> list[Obstacle]:
    return [Obstacle(reason) for reason, applies in reasons.items() if applies]


def _rope(config: Any) -> list[Obstacle]:
    """Return obstacles of rotary scalings by the longest position of a call."""
    parameters = getattr(config, "rope_parameters", None)
    parameters = parameters or getattr(config, "rope_scaling", None)
    if not isinstance(parameters, Mapping):
        return []
    nested = [value for value in parameters.values() if isinstance(value, Mapping)]
    out: list[Obstacle] = []
    for entry in (parameters, *nested):
        kind = entry.get("rope_type", entry.get("type"))
        if kind in ("dynamic", "longrope"):
            reason = f"its {kind} rotary scaling depends on the longest prompt"
            length = _first_length(config, entry)
            out.append(Obstacle(reason, length))
    return out


def _first_length(
    config: Any,
    entry: Mapping[str, Any],
) -> int:
    """Return the length up to which a rotary scaling changes nothing."""
    lengths = (
        entry.get("original_max_position_embeddings"),
        getattr(config, "original_max_position_embeddings", None),
        getattr(config, "max_position_embeddings", None),
    )
    return next((int(length) for length in lengths if length), 0)
