"""A handle on a loaded model: cheap to make, loaded on first use, shared, pickled as its settings.

`ModelHandle` is what `LocalLM` is besides the calls that it answers: where the model comes from,
what one handle adds to the shared model, and how its memory is let go.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from ecs_plugins.errors import ConfigurationError, ModelError
from ecs_plugins.lm.concurrency import DEFAULT_CONCURRENCY, Concurrency

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ecs_plugins.lm.base import ChatLayout
    from ecs_plugins.lm.loading import ModelSpec
    from ecs_plugins.lm.runtime import Runtime
    from ecs_plugins.lm.scoring.prefix import CacheStatistics

DEFAULT_TOKEN_BUDGET = 2048

Exactness = Literal["fp32", "bf16", "screen"]
"""``"fp32"``: right to about 1e-5 nats per token. ``"bf16"``: faster, and off by up to 0.1.
``"screen"``: as ``"fp32"``, with a copy in bfloat16 for those who choose among many
candidates and know what they choose by (see `ecs_plugins.lm.screening`)."""
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "screen": "float32"}
_SCREENING_DTYPE = "bfloat16"


def dtype_of(exactness: Exactness) -> str:
    """The dtype that a model computes in.

    Raises:
        ConfigurationError: There is no such exactness.
    """
    if exactness not in _DTYPES:
        raise ConfigurationError(
            f"exactness must be one of {', '.join(_DTYPES)}, got {exactness!r}"
        )
    return _DTYPES[exactness]


def dtype_for(exactness: Exactness | None, dtype: str) -> str:
    """The dtype to load in.

    Raises:
        ConfigurationError: The two contradict each other, or there is no such exactness.
    """
    if exactness is None:
        return dtype
    wanted = dtype_of(exactness)
    if dtype not in ("auto", wanted):
        raise ConfigurationError(
            f"exactness={exactness!r} computes in {wanted}, but dtype={dtype!r}; "
            "leave one of them out"
        )
    return wanted


def require_dtype(model: PreTrainedModel, exactness: Exactness | None) -> None:
    """Refuse a loaded model that cannot be as exact as is demanded.

    Raises:
        ConfigurationError: Its dtype is another, or there is only one model to screen with.
    """
    if exactness is None:
        return
    if exactness == "screen":
        raise ConfigurationError(
            "exactness='screen' needs the model twice, in float32 and in bfloat16: load it by "
            "name with LocalLM.from_pretrained"
        )
    if str(model.dtype) != f"torch.{dtype_of(exactness)}":
        raise ConfigurationError(
            f"exactness={exactness!r} needs a model in {dtype_of(exactness)}, and this one "
            f"is in {str(model.dtype).removeprefix('torch.')}: load it with that dtype"
        )


@dataclass(frozen=True, slots=True)
class HandleOptions:
    """What one handle adds to the shared model; see `LocalLM` for what they mean."""

    name: str
    layout: ChatLayout | None = None
    max_tokens: int | None = None
    token_budget: int = DEFAULT_TOKEN_BUDGET
    cache_bytes: int | None = None
    truncate_prefix: bool = False
    concurrency: Concurrency = DEFAULT_CONCURRENCY
    screens: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigurationError(f"max_tokens must be positive, got {self.max_tokens}")
        if self.token_budget < 1:
            raise ConfigurationError(f"token_budget must be positive, got {self.token_budget}")
        if self.cache_bytes is not None and self.cache_bytes < 0:
            raise ConfigurationError(
                f"cache_bytes must not be negative, got {self.cache_bytes}; 0 keeps nothing"
            )


class ModelHandle:
    """The life of a handle.

    Args:
        options: What it adds to the model.
        spec: What to load, or
        pair: a model and its tokenizer that are loaded already.
        runtime: The loaded model of ``spec``, if another handle holds it.
    """

    def __init__(
        self,
        options: HandleOptions,
        spec: ModelSpec | None = None,
        pair: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self._options = options
        self._spec = spec
        self._pair = pair
        self._runtime = runtime
        self._lock = threading.Lock()
        self._screen: Self | None = None

    @classmethod
    def _of(cls, spec: ModelSpec, options: HandleOptions, runtime: Runtime | None = None) -> Self:
        self = cls.__new__(cls)
        ModelHandle.__init__(self, options, spec, runtime=runtime)
        if options.screens:
            self._screen = cls._of(
                replace(spec, dtype=_SCREENING_DTYPE), replace(options, screens=False)
            )
        return self

    @property
    def name(self) -> str:
        """The hub name, the path, or the name given."""
        return self._options.name

    @property
    def layout(self) -> ChatLayout:
        """The layout of one user turn and its reply."""
        return self._options.layout or self._load().layout

    @property
    def max_tokens(self) -> int:
        """The window in tokens."""
        window = self._load().window
        return min(window, self._options.max_tokens or window)

    @property
    def screen(self) -> Self | None:
        """The same model in bfloat16, if the handle was made with ``exactness="screen"``."""
        return self._screen

    def warmup(self) -> Self:
        """Load the model and run its self-check now instead of on first use."""
        runtime = self._load()
        runtime.batcher.run(runtime.engine.warm_up)
        if self._screen is not None:
            self._screen.warmup()
        return self

    @property
    def cache_statistics(self) -> CacheStatistics:
        """What the prefix cache of the loaded model did so far."""
        return self._load().engine.cache.statistics

    def clear_cache(self) -> None:
        """Forget all computed prefixes of the loaded model and start counting anew."""
        self._load().engine.cache.clear()
        if self._screen is not None:
            self._screen.clear_cache()

    def close(self) -> None:
        """Let go of the model; its memory is freed once no other handle holds it.

        A handle made from a name loads it again when used; one made from a pair cannot.
        """
        with self._lock:
            self._runtime = None
            self._pair = None
        if self._screen is not None:
            self._screen.close()

    def _load(self) -> Runtime:
        runtime = self._runtime
        if runtime is not None:
            return runtime
        from ecs_plugins.lm.runtime import Runtime, shared_runtime

        with self._lock:
            if self._runtime is None:
                if self._spec is not None:
                    self._runtime = shared_runtime(self._spec)
                elif self._pair is not None:
                    self._runtime = Runtime(*self._pair, name=self.name)
                else:
                    raise ModelError(
                        f"{self.name} was closed; make a new LocalLM from a model and tokenizer"
                    )
            return self._runtime

    def __reduce__(self) -> tuple[object, ...]:
        if self._spec is None:
            raise ConfigurationError(
                "a LocalLM made from a loaded model cannot be pickled; make it with "
                "LocalLM.from_pretrained, which pickles as its configuration"
            )
        return (type(self)._of, (self._spec, self._options))

    def __copy__(self) -> Self:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """The weights are shared, never copied."""
        if self._spec is None:
            return self
        return self._of(self._spec, self._options, self._runtime)

    def __repr__(self) -> str:
        if self._spec is None:
            return f"LocalLM({self.name!r}, from a loaded model)"
        return f"LocalLM({self.name!r}, device={self._spec.device!r}, dtype={self._spec.dtype!r})"
