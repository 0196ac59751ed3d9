"""Text from prompts: transformers' own `generate`, in length-sorted, left-padded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ecs_plugins.lm.base import Generation, GenerationOptions
from ecs_plugins.lm.scoring.packs import TokenBudget, run_in_packs
from ecs_plugins.lm.scoring.request import common_length

if TYPE_CHECKING:
    from transformers import (
        DynamicCache,
        GenerationConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )

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

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        mixed_lengths: Whether prompts of different lengths share a batch; not for models whose
            layers see the padding (recurrent, ALiBi).
        release: Gives back memory that others keep, when it runs out here; says whether there was
            any.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        mixed_lengths: bool,
        release: Callable[[], bool],
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._mixed_lengths = mixed_lengths
        self._release = release

    def generate(self, prompts: Sequence[Ids], options: GenerationOptions) -> list[Generation]:
        """Continue every prompt; results in the order of the prompts."""
        lengths = [len(prompt) for prompt in prompts]
        longest_first = sorted(range(len(prompts)), key=lengths.__getitem__, reverse=True)
        generations: dict[int, Generation] = {}

        def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
            width = lengths[left[0]]
            alike = left
            if not self._mixed_lengths:
                alike = [index for index in left if lengths[index] == width]
            row_tokens = width + options.max_new_tokens
            room = max(1, tokens // row_tokens)
            number = min(len(alike), room)
            return number, number * row_tokens

        def run(batch: Sequence[int]) -> None:
            written = self._batch([prompts[index] for index in batch], options)
            generations.update(zip(batch, written, strict=True))

        cards = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices=cards):
            torch.manual_seed(options.seed)
            name = self._model.name_or_path or "the model"
            budget = TokenBudget(BATCH_TOKENS)
            run_in_packs(longest_first, take, run, budget, name, self._release)
        return [generations[index] for index in range(len(prompts))]

    def _batch(self, prompts: Sequence[Ids], options: GenerationOptions) -> list[Generation]:
        from transformers import StoppingCriteriaList

        ends = self._end_tokens()
        padding = self._padding_token(ends)
        ids, mask = _padded_on_the_left(prompts, padding, self._model.device)
        width = ids.shape[1]
        halt = _StopStrings(self._tokenizer, options.stop, width, len(prompts))
        criteria: list[Any] = [halt] if options.stop else []
        generate: Callable[..., torch.Tensor] = self._model.generate  # type: ignore[assignment]
        written = generate(
            ids,
            attention_mask=mask,
            past_key_values=self._read(prompts),
            generation_config=_generation_config(options, ends, padding),
            stopping_criteria=StoppingCriteriaList(criteria),
        )
        generations = []
        for number, row in enumerate(written[:, width:].tolist()):
            limits = [at + 1 for at, token in enumerate(row) if token in ends]
            if number in halt.stopped:
                limits.append(halt.stopped[number])
            prompt_tokens = len(prompts[number])
            generations.append(self._generation(prompt_tokens, row, limits, options.stop))
        return generations

    def _end_tokens(self) -> list[int]:
        """Tokens that end a reply: those of the checkpoint and that of the tokenizer."""
        configured = getattr(self._model.generation_config, "eos_token_id", None)
        named = list(configured) if isinstance(configured, list) else [configured]
        named.append(self._tokenizer.eos_token_id)
        return sorted({token for token in named if isinstance(token, int)})

    def _padding_token(self, ends: Sequence[int]) -> int:
        padding = self._tokenizer.pad_token_id
        if isinstance(padding, int):
            return padding
        return ends[0] if ends else 0

    def _read(self, prompts: Sequence[Ids]) -> DynamicCache | None:
        """Keys and values of all prompts but their last tokens, where reading them apart is faster.

        On a CPU, a padded batch pays for its padding and for the mask over it. So each prompt is
        read alone, from where it parts from the one before; None leaves it to transformers.
        """
        from transformers import DynamicCache

        shortest = min(len(prompt) for prompt in prompts)
        if shortest < WORTH_READING:
            return None
        if self._model.device.type != "cpu" or not self._mixed_lengths:
            return None
        width = max(len(prompt) for prompt in prompts) - 1
        reader = _PromptReader(self._model)
        rows: dict[int, list[torch.Tensor]] = {}
        for number in sorted(range(len(prompts)), key=prompts.__getitem__):
            layers = reader.read(prompts[number][:-1])
            if layers is None:
                return None
            rows[number] = [_widened(layer, width) for layer in layers]
        in_order = [rows[number] for number in range(len(prompts))]
        batched = [torch.stack(layer, dim=1) for layer in zip(*in_order, strict=True)]
        return DynamicCache([tuple(layer) for layer in batched])

    def _generation(
        self, prompt_tokens: int, row: list[int], limits: list[int], stop: Sequence[str]
    ) -> Generation:
        """What a row says up to the first of its limits, and to the first stop string in it."""
        length = min([len(row), *limits])
        text = str(self._tokenizer.decode(row[:length], skip_special_tokens=True))
        cuts = [text.find(mark) for mark in stop if mark in text]
        if cuts:
            text = text[: min(cuts)]
        reason = "stop" if limits or cuts else "length"
        return Generation(text, prompt_tokens, length, reason)


class _PromptReader:
    """Reads prompts one after the other, each from where it parts from the one before."""

    def __init__(self, model: PreTrainedModel) -> None:
        from transformers import DynamicCache

        self._model = model
        self._ids: Ids = ()
        # Made without the configuration, so that no layer forgets what lies outside its window.
        self._past = DynamicCache()

    def read(self, ids: Ids) -> list[torch.Tensor] | None:
        """Keys and values of every layer, ``[2, kv_heads, len(ids), head_dim]``.

        None if the model keeps anything else.
        """
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        shared = common_length(self._ids, ids)
        if shared < _WORTH_SHARING:
            shared = 0
            self._past = DynamicCache()
        else:
            self._past.crop(shared - len(self._ids))
        self._ids = ids
        rest = ids[shared:]
        if rest:
            fed = torch.tensor([rest], device=self._model.device)
            self._model.base_model(input_ids=fed, past_key_values=self._past, use_cache=True)
        kinds = {type(layer) for layer in self._past.layers}
        if kinds != {DynamicLayer}:
            return None
        return [torch.stack((keys[0], values[0])) for keys, values, *_ in self._past]


def _padded_on_the_left(
    prompts: Sequence[Ids], padding: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask, ``[prompts, width]``."""
    width = max(len(prompt) for prompt in prompts)
    ids = []
    mask = []
    for prompt in prompts:
        missing = width - len(prompt)
        ids.append((padding,) * missing + prompt)
        mask.append((0,) * missing + (1,) * len(prompt))
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _widened(states: torch.Tensor, width: int) -> torch.Tensor:
    """Keys and values with zeros in front, up to ``width`` tokens."""
    missing = width - states.shape[2]
    return torch.nn.functional.pad(states, (0, 0, missing, 0))


def _generation_config(
    options: GenerationOptions, ends: list[int], padding: int
) -> GenerationConfig:
    """Every field that a checkpoint's ``generation_config.json`` may set.

    So the call's own options decide.
    """
    from transformers import GenerationConfig

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
        "pad_token_id": padding,
    }
    return GenerationConfig.from_dict(settings)


class _StopStrings:
    """Ends a row of the batch once its own new text holds a stop string."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], width: int, rows: int
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._width = width
        self._rows = rows
        # A stop string has at most this many tokens; a few more let it begin inside one.
        longest = max((len(mark.encode()) for mark in stop), default=0)
        self._tail = longest + 4
        self.stopped: dict[int, int] = {}
        """Row -> number of new tokens when a stop string was complete."""

    def __call__(self, input_ids: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        read = input_ids.shape[1]
        length = read - self._width
        first = max(self._width, read - self._tail)
        tails = input_ids[:, first:].tolist()
        for row in range(self._rows):
            if row in self.stopped:
                continue
            text = str(self._tokenizer.decode(tails[row], skip_special_tokens=True))
            if any(mark in text for mark in self._stop):
                self.stopped[row] = length
        done = [row in self.stopped for row in range(self._rows)]
        return torch.tensor(done, dtype=torch.bool, device=input_ids.device)
