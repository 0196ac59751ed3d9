"""Generation of text: transformers' own `generate` in length-sorted, left-padded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
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
        numbers = range(len(prompts))
        longest_first = sorted(numbers, key=lengths.__getitem__, reverse=True)
        generations: dict[int, Generation] = {}

        def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
            width = lengths[left[0]]
            alike = left
            if not self._mixed_lengths:
                alike = [number for number in left if lengths[number] == width]
            row_tokens = width + options.max_new_tokens
            room = max(1, tokens // row_tokens)
            size = min(len(alike), room)
            return size, size * row_tokens

        def run(batch: Sequence[int]) -> None:
            chosen = [prompts[number] for number in batch]
            written = self._batch(chosen, options)
            generations.update(zip(batch, written, strict=True))

        with torch.inference_mode(), _own_random_numbers(self._model.device):
            torch.manual_seed(options.seed)
            run_in_packs(
                longest_first,
                take,
                run,
                TokenBudget(BATCH_TOKENS),
                self._model.name_or_path or "the model",
                self._release,
            )
        return [generations[number] for number in numbers]

    def _batch(
        self,
        prompts: Sequence[Ids],
        options: GenerationOptions,
    ) -> list[Generation]:
        from transformers import StoppingCriteriaList

        ends = self._end_tokens()
        padding = self._padding_token(ends)
        ids, mask = _padded_on_the_left(prompts, padding, self._model.device)
        width = ids.shape[1]
        halt = _StopStrings(
            self._tokenizer,
            options.stop,
            width,
            len(prompts),
        )
        criteria: list[Any] = []
        if options.stop:
            criteria.append(halt)
        generate: Callable[..., torch.Tensor] = self._model.generate  # type: ignore[assignment]
        written = generate(
            ids,
            attention_mask=mask,
            past_key_values=self._read(prompts),
            generation_config=_generation_config(options, ends, padding),
            stopping_criteria=StoppingCriteriaList(criteria),
        )
        rows = written[:, width:].tolist()
        generations = []
        for number, prompt in enumerate(prompts):
            row = rows[number]
            limits = [place + 1 for place, token in enumerate(row) if token in ends]
            if number in halt.stopped:
                limits.append(halt.stopped[number])
            generation = self._generation(
                len(prompt),
                row,
                limits,
                options.stop,
            )
            generations.append(generation)
        return generations

    def _end_tokens(self) -> list[int]:
        """Return the tokens that end a reply, of the checkpoint and of the tokenizer."""
        configured = getattr(self._model.generation_config, "eos_token_id", None)
        named = [self._tokenizer.eos_token_id]
        if isinstance(configured, list):
            named.extend(configured)
        else:
            named.append(configured)
        tokens = {token for token in named if isinstance(token, int)}
        return sorted(tokens)

    def _padding_token(self, ends: Sequence[int]) -> int:
        padding = self._tokenizer.pad_token_id
        if isinstance(padding, int):
            return padding
        return ends[0] if ends else 0

    def _read(self, prompts: Sequence[Ids]) -> DynamicCache | None:
        """Compute keys and values of all prompts but their last tokens, if that is faster.

        On a CPU, a padded batch pays for its padding and for the mask over it. So each prompt is
        read alone, after the part that it shares with the one before. None leaves the reading to
        transformers.
        """
        from transformers import DynamicCache

        lengths = [len(prompt) for prompt in prompts]
        if min(lengths) < WORTH_READING:
            return None
        if self._model.device.type != "cpu" or not self._mixed_lengths:
            return None
        width = max(lengths) - 1
        reader = _PromptReader(self._model)
        numbers = range(len(prompts))
        rows: dict[int, list[torch.Tensor]] = {}
        for number in sorted(numbers, key=prompts.__getitem__):
            prompt = prompts[number]
            layers = reader.read(prompt[:-1])
            if layers is None:
                return None
            rows[number] = [_widened(layer, width) for layer in layers]
        batched = []
        for layer in zip(*(rows[number] for number in numbers), strict=True):
            keys, values = torch.stack(layer, dim=1)
            batched.append((keys, values))
        return DynamicCache(batched)

    def _generation(
        self,
        prompt_tokens: int,
        row: list[int],
        limits: list[int],
        stop: Sequence[str],
    ) -> Generation:
        """Return the text of a row up to its first limit or stop string."""
        length = min([len(row), *limits])
        text = _decoded(self._tokenizer, row[:length])
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
        """Compute keys and values of every layer, ``[2, kv_heads, len(ids), head_dim]``.

        Return None if the model keeps anything else.
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
            self._model.base_model(
                input_ids=torch.tensor([rest], device=self._model.device),
                past_key_values=self._past,
                use_cache=True,
            )
        kinds = {type(layer) for layer in self._past.layers}
        if kinds != {DynamicLayer}:
            return None
        states = []
        for keys, values, *_ in self._past:
            both = torch.cat((keys, values))
            states.append(both)
        return states


def _own_random_numbers(device: torch.device) -> AbstractContextManager[None]:
    """Restore the random number generators afterwards."""
    cards = [device] if device.type == "cuda" else []
    return torch.random.fork_rng(devices=cards)


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    return str(text)


def _padded_on_the_left(
    prompts: Sequence[Ids],
    padding: int,
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and attention mask, ``[prompts, width]``, padded on the left."""
    width = max(len(prompt) for prompt in prompts)
    ids = []
    mask = []
    for prompt in prompts:
        length = len(prompt)
        missing = width - length
        ids.append([padding] * missing + list(prompt))
        mask.append([0] * missing + [1] * length)
    return (
        torch.tensor(ids, device=device),
        torch.tensor(mask, device=device),
    )


def _widened(states: torch.Tensor, width: int) -> torch.Tensor:
    """Put zeros before keys and values, up to ``width`` tokens."""
    missing = width - states.shape[2]
    in_front = (0, 0, missing, 0)
    return torch.nn.functional.pad(states, in_front)


def _generation_config(
    options: GenerationOptions,
    ends: list[int],
    padding: int,
) -> GenerationConfig:
    """Return a configuration with every field that ``generation_config.json`` may set.

    So the options of the call decide.
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
        self,
        tokenizer: PreTrainedTokenizerBase,
        stop: Sequence[str],
        width: int,
        rows: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._width = width
        self._rows = rows
        # A stop string has at most this many tokens; a few more let it begin inside one.
        lengths = [len(mark.encode()) for mark in stop]
        self._tail = max(lengths, default=0) + 4
        self.stopped: dict[int, int] = {}
        """Row -> number of new tokens when a stop string was complete."""

    def __call__(
        self,
        input_ids: torch.Tensor,
        *_: object,
        **__: object,
    ) -> torch.Tensor:
        read = input_ids.shape[1]
        length = read - self._width
        first = max(self._width, read - self._tail)
        tails = input_ids[:, first:].tolist()
        for row in range(self._rows):
            if row in self.stopped:
                continue
            text = _decoded(self._tokenizer, tails[row])
            if any(mark in text for mark in self._stop):
                self.stopped[row] = length
        done = torch.zeros(self._rows, dtype=torch.bool)
        done[list(self.stopped)] = True
        return done.to(input_ids.device)
