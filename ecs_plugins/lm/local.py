"""`LocalLM`: a Hugging Face causal language model behind the scoring seam.

It is a handle (see ``handle``): cheap to make, loaded on first use, shared in the process with
every other handle on the same model, and pickled as its configuration.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import (
    ChatLayout,
    Generation,
    ScoreRequest,
    ScoreResult,
    Segments,
)
from ecs_plugins.lm.concurrency import DEFAULT_CONCURRENCY, Concurrency
from ecs_plugins.lm.handle import (
    DEFAULT_TOKEN_BUDGET,
    Exactness,
    HandleOptions,
    ModelHandle,
    dtype_for,
    require_dtype,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ecs_plugins.lm.generation import GenerationOptions, Watch
    from ecs_plugins.lm.runtime import Runtime
    from ecs_plugins.lm.scoring.request import TokenRequest


class LocalLM(ModelHandle):
    """A local causal language model that scores and generates; a `LanguageModel`.

    Made from a loaded pair, it uses that pair as it is, on its device and in its dtype.
    Thread-safe. `from_pretrained` and `bundled` make one from a name.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer; copied for scoring, never changed.
        name: The recorded name; the checkpoint's by default.
        layout: The chat layout; from the tokenizer's chat template by default.
        max_tokens: A window shorter than the model's own.
        token_budget: Tokens that may pass through the model at once. Smaller needs less memory;
            it halves itself when memory runs out.
        cache_bytes: Bytes that computed prefixes may take between calls; 0 keeps none. The
            cache belongs to the loaded model, and the handle that was used last sets its size.
        truncate_prefix: Cut a prefix that leaves too little room from the left, keeping the
            tokens that the tokenizer puts at the head, instead of refusing it.
        exactness: ``"fp32"`` or ``"bf16"`` demands that dtype of the model; None takes what
            there is. (``"screen"`` needs a model by name.)
        concurrency: How calls wait for each other: queue limits, deadline, merging window.

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
        layout: ChatLayout | None = None,
        max_tokens: int | None = None,
        token_budget: int = DEFAULT_TOKEN_BUDGET,
        cache_bytes: int | None = None,
        truncate_prefix: bool = False,
        exactness: Exactness | None = None,
        concurrency: Concurrency = DEFAULT_CONCURRENCY,
    ) -> None:
        config = model.config
        require_dtype(model, exactness)
        label = name or getattr(config, "_name_or_path", "") or str(config.model_type)
        options = HandleOptions(
            label, layout, max_tokens, token_budget, cache_bytes, truncate_prefix, concurrency
        )
        super().__init__(options, pair=(model, tokenizer))

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | PathLike[str],
        *,
        device: str = "auto",
        dtype: str = "auto",
        revision: str | None = None,
        trust_remote_code: bool = False,
        allow_pickle: bool = False,
        local_files_only: bool = False,
        attn_implementation: str | None = None,
        layout: ChatLayout | None = None,
        max_tokens: int | None = None,
        token_budget: int = DEFAULT_TOKEN_BUDGET,
        cache_bytes: int | None = None,
        truncate_prefix: bool = False,
        exactness: Exactness | None = None,
        concurrency: Concurrency = DEFAULT_CONCURRENCY,
    ) -> LocalLM:
        """A handle on a model directory or on a model of the hub; loaded on first use.

        Naming a hub model is asking for it: it is downloaded if it is not in the local cache
        and ``local_files_only`` is False. A path is never looked up on the hub.

        Args:
            name_or_path: A directory, or a name such as ``"organisation/model"``.
            device: ``"auto"`` (CUDA, else MPS, else CPU) or a torch device.
            dtype: ``"auto"`` (float32 on a CPU, 16 bits on a GPU), ``"float32"``,
                ``"float16"`` or ``"bfloat16"``.
            revision: Branch, tag or commit on the hub.
            trust_remote_code: Run code that the checkpoint brings along.
            allow_pickle: Accept weights that are not safetensors; unpickling can run code.
            local_files_only: Never download.
            attn_implementation: Passed to transformers.
            layout: The chat layout; from the chat template by default.
            max_tokens: A window shorter than the model's own.
            token_budget: Tokens that may pass through the model at once.
            cache_bytes: Bytes that computed prefixes may take between calls; 0 keeps none.
            truncate_prefix: Cut a prefix that leaves too little room from the left instead of
                refusing it.
            exactness: ``"fp32"`` loads in float32 on every device, ``"bf16"`` in bfloat16;
                ``"screen"`` loads both, and shaping then scores every passage in bfloat16 and
                those that can still be kept in float32 (half as much memory again); None
                leaves it to ``dtype``.
            concurrency: How calls wait for each other.

        Raises:
            ModelNotFoundError: A path leads to no model directory. (Everything else that can be
                wrong with a model is found on first use, or by `warmup`.)
            ConfigurationError: An argument is out of range.
        """
        from ecs_plugins.lm.loading import ModelSpec

        spec = ModelSpec(
            fspath(name_or_path),
            device,
            dtype_for(exactness, dtype),
            revision,
            trust_remote_code,
            allow_pickle,
            local_files_only,
            attn_implementation,
        )
        spec.require_directory()
        options = HandleOptions(
            spec.name_or_path,
            layout,
            max_tokens,
            token_budget,
            cache_bytes,
            truncate_prefix,
            concurrency,
            exactness == "screen",
        )
        return cls._of(spec, options)

    @classmethod
    def bundled(
        cls,
        *,
        device: str = "auto",
        dtype: str = "auto",
        exactness: Exactness | None = None,
        concurrency: Concurrency = DEFAULT_CONCURRENCY,
    ) -> LocalLM:
        """A handle on the offline default model; the arguments are those of `from_pretrained`.

        Raises:
            ModelNotFoundError: It is not installed; the message says how to install it.
            ConfigurationError: ``dtype`` and ``exactness`` contradict each other.
        """
        from ecs_plugins.lm.bundled import BUNDLED, bundled_path
        from ecs_plugins.lm.loading import ModelSpec

        dtype = dtype_for(exactness, dtype)
        spec = ModelSpec(fspath(bundled_path()), device, dtype, local_files_only=True)
        options = HandleOptions(
            BUNDLED.name, concurrency=concurrency, screens=exactness == "screen"
        )
        return cls._of(spec, options)

    def score(
        self, requests: Sequence[ScoreRequest], *, deadline_s: float | None = None
    ) -> list[ScoreResult]:
        """Token log-probabilities of every scored segment, in nats.

        Calls of several threads are computed together where they meet.

        Args:
            requests: What to score.
            deadline_s: How long it may take, instead of what the handle was made with.

        Raises:
            InvalidInputError: A scored segment has no tokens, or a prefix fills the window.
            ScoringError: The model's numbers cannot be trusted, or memory does not suffice.
            ModelTimeoutError: The deadline passed.
            ModelBusyError: Too many calls wait already.
            ModelError: The model cannot be loaded or is not causal.
        """
        from ecs_plugins.lm.runtime import to_result

        runtime, window, encoded = self._encode(requests)
        results = runtime.batcher.score(
            encoded,
            window=window,
            token_budget=self._options.token_budget,
            concurrency=self._concurrency(deadline_s),
        )
        return [to_result(*pair) for pair in zip(encoded, results, strict=True)]

    def score_by_reference(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Like `score`, by the yardstick: one forward per candidate and continuation, no cache.

        As slow as that sounds; for checking what the fast paths say of a model.

        Raises:
            InvalidInputError: As by `score`.
            ScoringError: As by `score`.
        """
        from ecs_plugins.lm.runtime import to_result

        runtime, window, encoded = self._encode(requests)
        results = runtime.batcher.run(
            lambda: [runtime.by_reference(request, window) for request in encoded],
            self._concurrency(),
        )
        return [to_result(*pair) for pair in zip(encoded, results, strict=True)]

    async def ascore(
        self, requests: Sequence[ScoreRequest], *, deadline_s: float | None = None
    ) -> list[ScoreResult]:
        """Like `score`, for event loops; holds no thread while it waits.

        Cancelling the awaiting task drops what has not been computed yet.
        """
        from ecs_plugins.lm.runtime import to_result

        runtime, window, encoded = await run_sync(self._encode, requests)
        results = await runtime.batcher.ascore(
            encoded,
            window=window,
            token_budget=self._options.token_budget,
            concurrency=self._concurrency(deadline_s),
        )
        return [to_result(*pair) for pair in zip(encoded, results, strict=True)]

    def generate(
        self,
        prompts: Sequence[Segments],
        *,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 42,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Continue each prompt; greedy at temperature 0, else seeded sampling.

        Raises:
            InvalidInputError: An option is out of range, or a prompt with its new tokens is
                longer than the window.
            ModelError: The model cannot be loaded, or memory does not suffice.
        """
        from ecs_plugins.lm.generation import GenerationOptions

        if isinstance(stop, str):
            raise InvalidInputError(f"stop is a list of texts; write [{stop!r}]")
        options = GenerationOptions(max_new_tokens, temperature, top_p, seed, tuple(stop))
        return self._generate(prompts, options)

    def stream(
        self,
        prompt: Segments,
        *,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 42,
        stop: Sequence[str] = (),
    ) -> Generator[str, None, Generation]:
        """As `generate` for one prompt, in pieces while they are written.

        A generator whose return value is the `Generation`; the pieces join to its text. Closing
        it ends the reply after the present token.

        Raises:
            InvalidInputError: As by `generate`.
            ModelError: As by `generate`.
        """
        from ecs_plugins.lm.generation import GenerationOptions
        from ecs_plugins.lm.streaming import pieces

        options = GenerationOptions(max_new_tokens, temperature, top_p, seed, tuple(stop))
        return pieces(lambda watch: self._generate([prompt], options, watch)[0])

    def _generate(
        self,
        prompts: Sequence[Segments],
        options: GenerationOptions,
        watch: Watch | None = None,
    ) -> list[Generation]:
        from ecs_plugins.lm.runtime import encode_prompt

        runtime, window, new = self._load(), self.max_tokens, options.max_new_tokens
        encoded = [encode_prompt(runtime.encoder, prompt) for prompt in prompts]
        for n, ids in enumerate(encoded):
            if len(ids) + new > window:
                raise InvalidInputError(
                    f"prompt {n} has {len(ids)} tokens; with {new} new ones that is "
                    f"more than the model's window of {window}: shorten it or ask for fewer"
                )
        return runtime.batcher.run(
            lambda: runtime.generator.generate(encoded, options, watch), self._concurrency()
        )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens off."""
        from ecs_plugins.lm.tokenization import count

        return count(self._load().encoder, texts)

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> Segments:
        """Several turns as one prompt for the assistant's next turn; contents are untrusted.

        Args:
            messages: ``{"role": ..., "content": ...}`` in order.

        Raises:
            ConfigurationError: The model's chat template refuses these messages.
        """
        from ecs_plugins.lm.prompts import render_chat

        return render_chat(self._load().tokenizer, messages)

    def _encode(self, requests: Sequence[ScoreRequest]) -> tuple[Runtime, int, list[TokenRequest]]:
        from ecs_plugins.lm.runtime import encode_request

        runtime = self._load()
        window = min(runtime.window, self._options.max_tokens or runtime.window)
        encoded = [encode_request(runtime.encoder, request) for request in requests]
        if self._options.truncate_prefix:
            encoded = [r.truncated(window, len(runtime.encoder.lead)) for r in encoded]
        for request in encoded:
            request.require_room(window)
        self._size_cache(runtime)
        return runtime, window, encoded

    def _concurrency(self, deadline_s: float | None = None) -> Concurrency:
        concurrency = self._options.concurrency
        return concurrency if deadline_s is None else replace(concurrency, deadline_s=deadline_s)

    def _size_cache(self, runtime: Runtime) -> None:
        wanted = self._options.cache_bytes
        if wanted is not None and wanted != runtime.engine.cache.max_bytes:
            runtime.engine.cache.resize(wanted)
