"""What a model's configuration and device say about sharing a prefix: the planner's first net.

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
    r"window|local|chunk|original_max|floor|top_?k|block_size|stride|distance|extent"
)
_NAMES_NO_LENGTH = re.compile(r"expert|moe|group|layer|feed_forward|patch|conv")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason not to take a path for prompts longer than ``beyond`` tokens."""

    reason: str
    beyond: int = 0


class ScoringPath(StrEnum):
    """The ways to one result, fastest first."""

    CASCADE = "cascade"
    MASKED = "masked"
    PADDED = "padded"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What the planner needs to know of a model.

    Attributes:
        window: The longest prompt that the model takes, in tokens.
        obstacles: What speaks against a path.
        thresholds: Lengths that the configuration names, ascending; what a model does may change
            where a prompt, or a packed row, becomes longer.
        pads_on_the_left: Whether prompts of different lengths can be generated from together:
            recurrent states and key-counting biases see the padding.
    """

    window: int
    obstacles: Mapping[ScoringPath, Sequence[Obstacle]]
    pads_on_the_left: bool = True
    thresholds: Sequence[int] = ()

    def room(self, path: ScoringPath) -> int:
        """Tokens of the longest prompt that nothing here keeps from a path."""
        return min([self.window, *(o.beyond for o in self.obstacles.get(path, ()))])

    def against(self, path: ScoringPath, length: int) -> str | None:
        """Why a path cannot be used for prompts of this length, if so."""
        found = self.obstacles.get(path, ())
        return next((o.reason for o in found if length > o.beyond), None)


def profile_of(model: PreTrainedModel, takes: frozenset[str], tokenizer_limit: int) -> ModelProfile:
    """Read a loaded model's configuration.

    Args:
        model: The model.
        takes: Names of its forward's arguments.
        tokenizer_limit: The tokenizer's ``model_max_length``, used if the model names no window.
    """
    config = model.config.get_text_config()
    sharing, rope = [*_layers(model, config), *_positions(config, takes)], _rope(config)
    return ModelProfile(
        window=_window(config, tokenizer_limit),
        obstacles={
            ScoringPath.CASCADE: [*sharing, *_cascade(model, takes), *rope],
            ScoringPath.MASKED: [*sharing, *_mask(model, config, takes), *rope],
            ScoringPath.PADDED: [*_indexed(config), *rope],
        },
        pads_on_the_left=all(obstacle.beyond for obstacle in sharing),
        thresholds=sorted({n for n in _lengths(config.to_dict()) if n > 1}),
    )


def _lengths(value: Any, name: str = "") -> Iterator[int]:
    """Every number of a configuration, however deep, whose name says that it is a length."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _lengths(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _lengths(inner, name)
    elif (
        _NAMES_A_LENGTH.search(name)
        and not _NAMES_NO_LENGTH.search(name)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and value == value // 1
    ):
        yield int(value)


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
    if others := sorted(str(t) for t in types - {_FULL, _SLIDING}):
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
    """Attention to the best keys alone: which of equal ones depends on the length of a batch."""
    return [
        Obstacle(f"its attention keeps the best {kept} keys, and ties fall by batch", kept)
        for name in ("index_topk", "keep_window_size")
        if isinstance(kept := getattr(config, name, None), int)
    ]


def _positions(config: Any, takes: frozenset[str]) -> list[Obstacle]:
    inner = getattr(config, "attn_config", None)
    alibi = getattr(config, "alibi", False) or getattr(inner, "alibi", False)
    if alibi or config.model_type == "bloom":
        return [Obstacle("its ALiBi bias counts keys, not positions")]
    if "position_ids" not in takes:
        return [Obstacle("its positions cannot be set")]
    return []


def _cascade(model: PreTrainedModel, takes: frozenset[str]) -> list[Obstacle]:
    kind, devices = model.device.type, set(getattr(model, "hf_device_map", {}).values())
    return _obstacles(
        {
            "its attention cannot be replaced": not model._supports_attention_backend,
            "it computes the logits of every row": "logits_to_keep" not in takes,
            f"no attention kernel for {kind} returns its weights": kind not in ("cpu", "cuda"),
            "it is spread over several devices": len(devices) > 1,
        }
    )


def _mask(model: PreTrainedModel, config: Any, takes: frozenset[str]) -> list[Obstacle]:
    kind = str(getattr(model.config, "_attn_implementation", None) or "eager")
    local = "local" in str(getattr(config, "attention_types", None))
    return _obstacles(
        {
            "its local attention counts keys, not positions": local,
            "it has no key-value cache": "past_key_values" not in takes,
            f"its attention implementation {kind!r} takes no tree mask": kind
            not in _MASKED_ATTENTION,
        }
    )


def _obstacles(reasons: Mapping[str, bool]) -> list[Obstacle]:
    return [Obstacle(reason) for reason, applies in reasons.items() if applies]


def _rope(config: Any) -> list[Obstacle]:
    """Rotary scalings by the longest position of a call; they matter beyond the first length."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(parameters, Mapping):
        return []
    nested = [value for value in parameters.values() if isinstance(value, Mapping)]
    out: list[Obstacle] = []
    for entry in (parameters, *nested):
        kind = entry.get("rope_type", entry.get("type"))
        if kind in ("dynamic", "longrope"):
            first: int | None = (
                entry.get("original_max_position_embeddings")
                or getattr(config, "original_max_position_embeddings", None)
                or getattr(config, "max_position_embeddings", None)
            )
            out.append(
                Obstacle(f"its {kind} rotary scaling depends on the longest prompt", first or 0)
            )
    return out
