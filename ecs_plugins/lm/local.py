"""`LocalLM`: a Hugging Face causal language model as a `LanguageModel`.

It is a handle: cheap to make, loaded on first use, shared in the process with every other handle
on the same model, and pickled as its settings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakValueDictionary

from pydantic import Field

from ecs_plugins.errors import ConfigurationError, ModelError
from ecs_plugins.lm.base import (
    ChatLayout,
    Generation,
    LanguageModel,
    ScoreRequest,
    ScoreResult,
    Segments,
)
from ecs_plugins.lm.loading import LoadingOptions, load, require_directory

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ecs_plugins.lm.scoring.prefix import CacheStatistics
    from ecs_plugins.lm.worker import Scoring, Worker

T = TypeVar("T")


class _Runtime:
    """A loaded model and tokenizer with their engine, worker and generator.

    Args:
        model: The loaded model.
        tokenizer: Its tokenizer.
        name: Name for error messages.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
    ) -> None:
        from ecs_plugins.lm.encoding import encoder_of
        from ecs_plugins.lm.generation import Generator
        from ecs_plugins.lm.prompts import chat_layout
        from ecs_plugins.lm.scoring.check import vocabulary_of
        from ecs_plugins.lm.scoring.planner import ScoringEngine
        from ecs_plugins.lm.scoring.profile import profile_of
        from ecs_plugins.lm.scoring.runner import Runner
        from ecs_plugins.lm.worker import Worker

        self.model = model
        self.tokenizer = tokenizer
        self.layout = chat_layout(tokenizer)
        self.encoder = encoder_of(tokenizer, self.layout)
        runner = Runner(model, name)
        profile = profile_of(model, runner.takes, int(tokenizer.model_max_length))
        self.window = profile.window
        self._rows = vocabulary_of(runner)
        engine = ScoringEngine(runner, profile)
        self.engine = engine
        self.worker = Worker()
        self.generator = Generator(
            model,
            tokenizer,
            mixed_lengths=profile.pads_on_the_left,
            # `forget` replaces the cache. This object is not used here: a circle would keep a
            # closed model until the collector comes.
            release=lambda: engine.cache.release(),
        )

    def require_rows(self, sequences: Iterable[Sequence[int]]) -> None:
        """Refuse tokens that the model has no row for, as those of another tokenizer.

        Raises:
            ConfigurationError: There is one.
        """
        if len(self.tokenizer) <= self._rows:
            return
        largest = max((max(ids, default=0) for ids in sequences), default=0)
        if largest >= self._rows:
            raise ConfigurationError(
                f"the tokenizer gave the token {largest}, and the model has {self._rows}: give "
                "the tokenizer of the same checkpoint, or resize_token_embeddings"
            )


_SHARED: WeakValueDictionary[tuple[str, LoadingOptions], _Runtime] = WeakValueDictionary()
_LOADING = threading.Lock()


def _shared_runtime(name_or_path: str, options: LoadingOptions) -> _Runtime:
    """Return the one runtime of this process for a name and its options, loaded on first use.

    It lives as long as somebody holds it.
    """
    with _LOADING:
        runtime = _SHARED.get((name_or_path, options))
        if runtime is None:
            model, tokenizer = load(name_or_path, options)
            runtime = _Runtime(model, tokenizer, name=name_or_path)
            _SHARED[name_or_path, options] = runtime
        return runtime


class LocalLMOptions(LoadingOptions):
    """Settings of a `LocalLM`, besides those of loading."""

    layout: ChatLayout | None = Field(
        None,
        description="The chat layout; from the tokenizer's chat template by default.",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="A window shorter than the model's own, in tokens.",
    )
    token_budget: int | None = Field(
        None,
        ge=1,
        description="Tokens that may pass through the model at once; 2,048 on a processor and "
        "24,576 on a card by default. Smaller needs less memory; it halves itself when memory runs "
        "out.",
    )
    cache_bytes: int | None = Field(
        None,
        ge=0,
        description="Bytes for keys and values that are kept between calls; 0 keeps "
        "none; by default a share of the memory that is free at the first use, an "
        "eighth (64 MiB to 16 GiB) on a processor and a quarter on a card; `cache_statistics` says "
        "how much. The cache belongs to the loaded model, and the handle that was used last sets "
        "its size.",
    )
    max_waiting: int = Field(
        1024,
        ge=1,
        description="Calls that may wait or be under way; one more is refused.",
    )
    deadline_s: float | None = Field(
        None,
        gt=0,
        description="Seconds that a call may take; None for no limit.",
    )


class LocalLM:
    """A local causal language model that scores and generates; a `LanguageModel`.

    Made from a loaded pair, it uses that pair as it is, on its device and in its dtype.
    Thread-safe. `from_pretrained` and `bundled` make one from a name.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer; copied for scoring, never changed.
        name: The recorded name; the checkpoint's by default.
        **options: Fields of `LocalLMOptions` that do not concern loading.

    Raises:
        ConfigurationError: An option is unknown, out of range, or concerns loading; or there is
            no tokenizer, or no weights.

    Example:
        >>> model = LocalLM.from_pretrained("path/to/model")  # doctest: +SKIP
        >>> model.count_tokens(["a passage"])  # doctest: +SKIP
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str | None = None,
        **options: Any,
    ) -> None:
        given = LocalLMOptions(**options)
        wrong = sorted(given.model_fields_set & set(LoadingOptions.model_fields))
        if wrong:
            raise ConfigurationError(
                f"{', '.join(wrong)}: a loaded model has its device and dtype already; give this "
                "to LocalLM.from_pretrained, or load the model with it"
            )
        _check_pair(model, tokenizer)
        config = model.config
        label = name or getattr(config, "_name_or_path", "") or str(config.model_type)
        self._set_up(label, given, pair=(model, tokenizer))

    @classmethod
    def from_pretrained(cls, name_or_path: str | PathLike[str], **options: Any) -> Self:
        """Return a handle on a model directory or on a model of the hub, loaded on first use.

        Nothing is downloaded unasked: a hub model that is not in the local cache needs
        ``allow_download=True``. A path is never looked up on the hub.

        Args:
            name_or_path: A directory, or a name such as ``"organisation/model"``.
            **options: Fields of `LocalLMOptions`, such as ``device``, ``dtype``, ``max_tokens``.

        Raises:
            ModelNotFoundError: A path leads to no model directory. (Everything else that can be
                wrong with a model is found on first use, or by `warmup`.)
            ConfigurationError: An option is unknown or out of range.
        """
        path = fspath(name_or_path)
        require_directory(path)
        return cls._of(path, path, LocalLMOptions(**options))

    @classmethod
    def bundled(cls, **options: Any) -> Self:
        """Return a handle on the offline default model; options as of `from_pretrained`.

        Raises:
            ModelNotFoundError: It is not installed; the message says how to install it.
            ConfigurationError: An option is unknown or out of range.
        """
        from ecs_plugins.lm.bundled import BUNDLED, bundled_path

        settings = LocalLMOptions(**options)
        return cls._of(BUNDLED.name, fspath(bundled_path()), settings)

    @classmethod
    def _of(cls, name: str, source: str, options: LocalLMOptions) -> Self:
        self = cls.__new__(cls)
        self._set_up(name, options, source)
        return self

    def _set_up(
        self,
        name: str,
        options: LocalLMOptions,
        source: str | None = None,
        pair: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
    ) -> None:
        self._name = name
        self._options = options
        self._source = source
        self._pair = pair
        self._runtime: _Runtime | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Hub name, path, or given name."""
        return self._name

    @property
    def layout(self) -> ChatLayout:
        """Layout of one user turn and its reply."""
        return self._options.layout or self._load().layout

    @property
    def max_tokens(self) -> int:
        """Longest prompt in tokens."""
        window = self._load().window
        return min(window, self._options.max_tokens or window)

    def pair(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the loaded model and its tokenizer, so that other libraries need not load them.

        This handle computes with them: do not change them.
        """
        runtime = self._load()
        return runtime.model, runtime.tokenizer

    def score(
        self,
        requests: Sequence[ScoreRequest],
        *,
        deadline_s: float | None = None,
    ) -> list[ScoreResult]:
        """Return the token log-probabilities of every scored segment, in nats.

        Concurrent calls of several threads are batched.

        Args:
            requests: Requests to score.
            deadline_s: Seconds that the call may take, instead of the option of the handle.

        Raises:
            InvalidInputError: A scored segment has no tokens, or a prefix fills the window.
            ScoringError: The model's numbers cannot be trusted, or memory does not suffice.
            ModelTimeoutError: The deadline passed.
            ModelBusyError: Too many calls wait already.
            ModelError: The model cannot be loaded or is not causal.
        """
        from ecs_plugins.lm.encoding import to_result

        job, worker = self._scoring(requests, deadline_s)
        scored = worker.compute(job, self._options.max_waiting)
        return list(map(to_result, job.requests, scored))

    def score_by_reference(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Score with one forward per candidate and continuation, without a cache.

        Slow; for checks of the fast paths.

        Raises:
            InvalidInputError: As by `score`.
            ScoringError: As by `score`.
        """
        from ecs_plugins.lm.encoding import to_result

        job, _ = self._scoring(requests)
        scored = self._run(job.by_reference)
        return list(map(to_result, job.requests, scored))

    def generate(self, prompts: Sequence[Segments], **options: Any) -> list[Generation]:
        """Continue each prompt; greedy at temperature 0, else seeded sampling.

        Args:
            prompts: Prompts to continue.
            **options: ``max_new_tokens=64``, ``temperature=0.0``, ``top_p=1.0``, ``seed=42``,
                ``stop=()``: texts that end a reply.

        Raises:
            ConfigurationError: An option is unknown or out of range.
            InvalidInputError: A prompt with its new tokens is longer than the window.
            ModelError: The model cannot be loaded, or memory does not suffice.
        """
        from ecs_plugins.lm.base import GenerationOptions
        from ecs_plugins.lm.encoding import encode_prompts

        given = GenerationOptions(**options)
        runtime = self._load()
        encoded = encode_prompts(runtime.encoder, prompts, given.max_new_tokens, self.max_tokens)
        runtime.require_rows(encoded)
        return self._run(lambda: runtime.generator.generate(encoded, given))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, without special tokens."""
        from ecs_plugins.lm.tokenization import count

        return count(self._load().encoder, texts)

    def warmup(self) -> Self:
        """Load the model and run its self-check now instead of on first use."""
        self._run(self._load().engine.warm_up)
        return self

    def prepare(self, requests: Sequence[ScoreRequest]) -> int:
        """Read passages before the first question about them, and keep their keys and values.

        Prefix, candidates, and the template's words after them are read; nothing is scored.

        Args:
            requests: Later requests, with any question.

        Returns:
            Tokens that passed through the model; none for known passages.

        Raises:
            EcsPluginsError: As by `score`.
        """
        if self._options.cache_bytes == 0:  # nothing would be kept
            return 0
        job, worker = self._scoring(requests)
        job.requests = [request.beginning for request in job.requests]
        results = worker.compute(job, self._options.max_waiting)
        return sum(result.computed_tokens for result in results)

    @property
    def placement(self) -> str:
        """Dtype and device of the model, and on a CPU the gain of bfloat16."""
        from ecs_plugins.lm.devices import describe

        runner = self._load().engine.runner
        return describe(runner.device, runner.dtype)

    @property
    def cache_statistics(self) -> CacheStatistics:
        """Keys and values that the model keeps between calls, and the tokens that this saved."""
        return self._load().engine.cache.statistics

    def clear_cache(self) -> None:
        """Forget all texts that the loaded model has read, and all that was made of its weights."""
        runtime = self._runtime
        if runtime is None and self._source:
            runtime = _SHARED.get((self._source, self._options.loading))
        if runtime is not None:
            runtime.engine.forget()

    def close(self) -> None:
        """Release the model; its memory is freed once no other handle holds it.

        A handle made from a name loads it again when used; one made from a pair cannot.
        """
        with self._lock:
            self._runtime = None
            self._pair = None

    def _load(self) -> _Runtime:
        runtime = self._runtime
        if runtime is not None:
            return runtime
        with self._lock:
            if self._runtime is None:
                if self._source is not None:
                    self._runtime = _shared_runtime(self._source, self._options.loading)
                elif self._pair is not None:
                    self._runtime = _Runtime(*self._pair, name=self.name)
                else:
                    raise ModelError(
                        f"{self.name} was closed; make a new LocalLM from a model and tokenizer"
                    )
            return self._runtime

    def _scoring(
        self,
        requests: Sequence[ScoreRequest],
        deadline_s: float | None = None,
    ) -> tuple[Scoring, Worker]:
        from ecs_plugins.lm.encoding import encode_request
        from ecs_plugins.lm.worker import Scoring

        runtime = self._load()
        engine = runtime.engine
        window = self.max_tokens
        options = self._options
        encoded = [encode_request(runtime.encoder, request) for request in requests]
        for request in encoded:
            request.require_room(window)
            runtime.require_rows(request.ids)
        if options.cache_bytes is not None:
            engine.cache.max_bytes = options.cache_bytes
        limit = options.deadline_s if deadline_s is None else deadline_s
        token_budget = options.token_budget or engine.token_budget
        job = Scoring(engine, encoded, window, token_budget, limit)
        return job, runtime.worker

    def _run(self, function: Callable[[], T]) -> T:
        from ecs_plugins.lm.worker import Call

        job = Call(function, self._options.deadline_s)
        return self._load().worker.compute(job, self._options.max_waiting)

    def __reduce__(self) -> tuple[object, ...]:
        if self._source is None:
            raise ConfigurationError(
                "a LocalLM made from a loaded model cannot be pickled; make it with "
                "LocalLM.from_pretrained, which pickles as its configuration"
            )
        return (type(self)._of, (self._name, self._source, self._options))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return the handle itself: weights are shared, never copied."""
        return self

    def __repr__(self) -> str:
        if self._source is None:
            return f"LocalLM({self.name!r}, from a loaded model)"
        loading = self._options.loading
        return f"LocalLM({self.name!r}, device={loading.device!r}, dtype={loading.dtype!r})"


def _check_pair(model: Any, tokenizer: Any) -> None:
    """Refuse a pair that cannot score, before its first use."""
    if not callable(getattr(tokenizer, "encode", None)):
        raise ConfigurationError(
            f"LocalLM needs the model's tokenizer, got {tokenizer!r}: give "
            "AutoTokenizer.from_pretrained(...) of the same checkpoint"
        )
    if not hasattr(model, "config") or not callable(getattr(model, "parameters", None)):
        raise ConfigurationError(
            f"LocalLM needs a model of transformers, got {type(model).__name__}; give "
            "LocalLM.from_pretrained a name or a directory"
        )
    # Weights that accelerate has put elsewhere are brought by its hook.
    if not hasattr(model, "_hf_hook") and any(weight.is_meta for weight in model.parameters()):
        raise ConfigurationError(
            "the model is on the meta device and has no weights; load it with from_pretrained on "
            "a device that computes"
        )


def as_model(model: str | LanguageModel | None) -> LanguageModel:
    """Return a language model, the one with a name or directory, or the bundled one for None."""
    if model is None or isinstance(model, str):
        return _named_model(model)
    return model


@cache
def _named_model(name: str | None) -> LanguageModel:
    # Weights live as long as a handle on them. Frameworks rebuild their objects, even for each
    # call, so the handle is kept here and not by the object.
    return LocalLM.bundled() if name is None else LocalLM.from_pretrained(name)
