"""Text from prompts: transformers' own `generate`, in length-sorted, left-padded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ecs_plugins.lm.base import Generation, GenerationOptions
from ecs_plugins.lm.scoring.request import common_length
from ecs_plugins.lm.scoring.runner import TokenBudget, run_in_packs

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

Ids = tuple[int, ...]

BATCH_TOKENS = 16_384
"""Prompt and new tokens of one batch. A step of decoding reads all weights, however many rows share
it, so a batch is large; it is halved when memory runs out."""
WORTH_READING = 64
"""Shorter prompts are read together: a processor is not busy with one alone."""
_WORTH_SHARING = 16
"""Fewer equal tokens at the start of two prompts are read again: a mask would cost more."""


class Generator:
    """Generates with one loaded pair. The caller serialises its calls.

    Without ``mixed_lengths`` only prompts of equal length share a batch: for models whose layers
    see the padding (recurrent, ALiBi).
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, mixed_lengths: bool
    ) -> None:
        self._model, self._tokenizer, self._mixed = model, tokenizer, mixed_lengths

    def generate(self, prompts: Sequence[Ids], options: GenerationOptions) -> list[Generation]:
        """Continue every prompt; results in the order of the prompts."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]), reverse=True)
        out: dict[int, Generation] = {}

        def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
            width = len(prompts[left[0]])
            alike = [i for i in left if self._mixed or len(prompts[i]) == width]
            room = max(1, tokens // (width + options.max_new_tokens))
            number = min(len(alike), room)
            return number, number * (width + options.max_new_tokens)

        def run(batch: Sequence[int]) -> None:
            out.update(zip(batch, self._batch([prompts[i] for i in batch], options), strict=True))

        devices = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices=devices):
            torch.manual_seed(options.seed)
            name = self._model.name_or_path or "the model"
            run_in_packs(order, take, run, TokenBudget(BATCH_TOKENS), name)
        return [out[i] for i in range(len(prompts))]

    def _batch(self, prompts: Sequence[Ids], options: GenerationOptions) -> list[Generation]:
        from transformers import GenerationConfig, StoppingCriteriaList

        width = max(len(ids) for ids in prompts)
        configured = getattr(self._model.generation_config, "eos_token_id", None)
        ends = configured if isinstance(configured, list) else [configured]
        ends = sorted({i for i in (*ends, self._tokenizer.eos_token_id) if isinstance(i, int)})
        pad = self._tokenizer.pad_token_id
        pad = pad if isinstance(pad, int) else (ends[0] if ends else 0)
        device = self._model.device
        ids = torch.tensor([(pad,) * (width - len(p)) + p for p in prompts], device=device)
        mask = torch.tensor(
            [(0,) * (width - len(p)) + (1,) * len(p) for p in prompts], device=device
        )
        # Every field that a checkpoint's generation_config.json may set is set here, so that
        # the call's own options decide.
        sampling = options.temperature > 0
        settings: dict[str, Any] = {
            "max_new_tokens": options.max_new_tokens,
            "do_sample": sampling,
            "temperature": options.temperature if sampling else 1.0,
            "top_p": options.top_p if sampling else 1.0,
            "top_k": 0 if sampling else 50,
            "num_beams": 1,
            "repetition_penalty": 1.0,
            "eos_token_id": ends or None,
            "pad_token_id": pad,
        }
        config = GenerationConfig.from_dict(settings)
        halt = _StopStrings(self._tokenizer, options.stop, width, len(prompts))
        criteria: list[Any] = [halt] if options.stop else []
        generate: Callable[..., torch.Tensor] = self._model.generate  # type: ignore[assignment]
        written = generate(
            ids,
            attention_mask=mask,
            past_key_values=self._read(prompts),
            generation_config=config,
            stopping_criteria=StoppingCriteriaList(criteria),
        )[:, width:].tolist()
        return [
            self._result(prompt, row, ends, halt.stopped.get(n), options.stop)
            for n, (prompt, row) in enumerate(zip(prompts, written, strict=True))
        ]

    def _read(self, prompts: Sequence[Ids]) -> DynamicCache | None:
        """Keys and values of all prompts but their last tokens, where reading them apart is faster.

        On a CPU, a padded batch pays for its padding and for the mask over it. So each prompt is
        read alone, from where it parts from the one before; None leaves it to transformers.
        """
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        shortest = min(map(len, prompts))
        if self._model.device.type != "cpu" or not self._mixed or shortest < WORTH_READING:
            return None
        width = max(map(len, prompts)) - 1
        rows: dict[int, list[torch.Tensor]] = {}
        # Made without the configuration, so that no layer forgets what lies outside its window.
        past, read = DynamicCache(), Ids()
        for row in sorted(range(len(prompts)), key=prompts.__getitem__):
            ids = prompts[row][:-1]
            shared = common_length(read, ids)
            if shared < _WORTH_SHARING:
                past, shared = DynamicCache(), 0
            else:
                past.crop(shared - len(read))
            if rest := ids[shared:]:
                fed = torch.tensor([rest], device=self._model.device)
                self._model.base_model(input_ids=fed, past_key_values=past, use_cache=True)
            if not past.layers or any(type(layer) is not DynamicLayer for layer in past.layers):
                return None
            states = [torch.stack((keys[0], values[0])) for keys, values, *_ in past]
            rows[row] = [torch.nn.functional.pad(s, (0, 0, width - len(ids), 0)) for s in states]
            read = ids
        layers = zip(*(rows[row] for row in range(len(prompts))), strict=True)
        return DynamicCache([tuple(torch.stack(layer, dim=1)) for layer in layers])

    def _result(
        self, prompt: Ids, row: list[int], ends: list[int], stopped: int | None, stop: Sequence[str]
    ) -> Generation:
        ended = next((n + 1 for n, token in enumerate(row) if token in ends), None)
        length = min(n for n in (stopped, ended, len(row)) if n is not None)
        text = str(self._tokenizer.decode(row[:length], skip_special_tokens=True))
        cuts = [at for mark in stop if (at := text.find(mark)) >= 0]
        finished = "length" if stopped is None and ended is None and not cuts else "stop"
        return Generation(text[: min(cuts)] if cuts else text, len(prompt), length, finished)


class _StopStrings:
    """Ends a row of the batch once its own new text holds a stop string."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], width: int, rows: int
    ) -> None:
        self._tokenizer, self._stop, self._width, self._rows = tokenizer, stop, width, rows
        # A stop string has at most this many tokens; a few more let it begin inside one.
        self._tail = max((len(mark.encode()) for mark in stop), default=0) + 4
        self.stopped: dict[int, int] = {}
        """Row -> number of new tokens when a stop string was complete."""

    def __call__(self, input_ids: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        length = input_ids.shape[1] - self._width
        tails = input_ids[:, max(self._width, input_ids.shape[1] - self._tail) :].tolist()
        for row in range(self._rows):
            if row not in self.stopped:
                text = str(self._tokenizer.decode(tails[row], skip_special_tokens=True))
                if any(mark in text for mark in self._stop):
                    self.stopped[row] = length
        done = [row in self.stopped for row in range(self._rows)]
        return torch.tensor(done, dtype=torch.bool, device=input_ids.device)
