"""Paths through the model's own attention: the yardstick, and two for models that need them.

* `score_by_reference`: one full forward per candidate and continuation. Deliberately plain: it
  reads full logits, so that the fast paths are held to what ``model(input_ids).logits`` says.
* `score_padded`: right-padded batches without a cache. A causal model does not see padding on the
  right, whatever its layers are: sliding windows, ALiBi, recurrent states.
* `MaskedForward`: packed rows under a tree mask, for attention that flash kernels do not know
  (soft-capped scores, sinks). As exact as a cascade, and quadratic in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ecs_plugins.lm.scoring.forest import Forest
from ecs_plugins.lm.scoring.prefix import KeyValues, PrefixState
from ecs_plugins.lm.scoring.request import Ids, Path, PathScores
from ecs_plugins.lm.scoring.runner import (
    Logprobs,
    Runner,
    TokenBudget,
    run_in_packs,
    target_logprobs,
)


def score_by_reference(runner: Runner, prefix: Ids, paths: Sequence[Path]) -> PathScores:
    """Log-probabilities of every path's scored tokens, in nats."""
    logprobs, computed = [], 0
    kwargs = {"use_cache": False} if "use_cache" in runner.takes else {}
    for path in paths:
        fed = prefix + path.ids  # with the last token, which a scaling by length counts
        logits = runner.model(input_ids=runner.ids(fed), **kwargs).logits[0]
        rows = torch.tensor([len(prefix) + i - 1 for i in path.scored], device=logits.device)
        targets = torch.tensor([path.ids[i] for i in path.scored], device=logits.device)
        chosen = torch.log_softmax(logits[rows].float(), dim=-1)
        logprobs.append(chosen.gather(1, targets[:, None])[:, 0].cpu().numpy())
        path.compare(logits, rows.tolist())
        computed += len(fed)
    return PathScores(logprobs, computed)


def score_padded(
    runner: Runner, prefix: Ids, paths: Sequence[Path], budget: TokenBudget
) -> PathScores:
    """Log-probabilities of every path's scored tokens, in nats."""
    results: dict[int, Logprobs] = {}
    computed = 0
    fixed: dict[str, Any] = {"use_cache": False} if "use_cache" in runner.takes else {}

    def length(index: int) -> int:
        return len(prefix) + len(paths[index].ids) - 1

    def rows(indices: Sequence[int]) -> list[int]:
        return sorted({len(prefix) + i - 1 for index in indices for i in paths[index].scored})

    def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
        # Sorted by length, longest first: the first one of a batch sets its width.
        number, width = 1, length(left[0])
        while number < len(left):
            more = number + 1
            if more * width > tokens or more * len(rows(left[:more])) > runner.max_rows:
                break
            number = more
        return number, number * width

    def run(indices: Sequence[int]) -> None:
        nonlocal computed
        width = max(length(i) for i in indices)
        fed = [(prefix + paths[i].ids)[:-1] for i in indices]
        ids = runner.ids([ids + (0,) * (width - len(ids)) for ids in fed])
        mask = runner.ids([(1,) * len(ids) + (0,) * (width - len(ids)) for ids in fed])
        keep = rows(indices)
        logits = runner.logits(ids, keep, attention_mask=mask, **fixed)
        at = {row: n for n, row in enumerate(keep)}
        for n, index in enumerate(indices):
            path = paths[index]
            wanted = [at[len(prefix) + i - 1] for i in path.scored]
            results[index] = target_logprobs(logits[n, wanted], [path.ids[i] for i in path.scored])
            path.compare(logits[n], wanted)
        computed += len(indices) * width

    order = sorted(range(len(paths)), key=length, reverse=True)
    bases = [index for index in order if paths[index].is_base]
    for part in (bases, [index for index in order if index not in bases]):
        run_in_packs(part, take, run, budget, runner.name)
    return PathScores([results[i] for i in range(len(paths))], computed)


class MaskedForward:
    """A `PackedForward` through the model's own attention."""

    many_prefixes = False
    """Whether forests behind different prefixes can share a row."""
    max_tokens = 768
    """Tokens of a row from which on it costs more than two shorter ones."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def __call__(
        self,
        groups: Sequence[tuple[Forest, PrefixState]],
        rows: Sequence[int],
        *,
        capture: bool = False,
    ) -> tuple[torch.Tensor, KeyValues]:
        """Run one forest behind one prefix."""
        from transformers import DynamicCache

        ((forest, prefix),) = groups
        past = len(prefix.ids)
        # Made without the configuration, so that no layer forgets what lies outside its window.
        cache = DynamicCache(prefix.layers) if past else DynamicCache()
        with_cache: dict[str, Any] = {"past_key_values": cache} if past or capture else {}
        logits = self.runner.logits(
            self.runner.ids(forest.tokens),
            rows,
            attention_mask=self._mask(forest, past),
            position_ids=self.runner.ids([past + depth for depth in forest.depths]),
            use_cache=bool(with_cache),
            **with_cache,
        )[0]
        if not capture:
            return logits, ()
        return logits, tuple((layer[0][:, :, past:], layer[1][:, :, past:]) for layer in cache)

    def _mask(self, forest: Forest, past: int) -> torch.Tensor:
        """Additive, ``[1, 1, rows, past + rows]``."""
        size, device = len(forest.tokens), self.runner.device
        ends = torch.empty(size, dtype=torch.long)
        for node in forest.nodes:
            ends[node.start : node.stop] = node.end
        row = torch.arange(size, device=device)
        seen = (row[None, :] <= row[:, None]) & (row[:, None] < ends.to(device)[None, :])
        mask = torch.zeros(size, past + size, dtype=self.runner.dtype, device=device)
        mask[:, past:].masked_fill_(~seen, torch.finfo(self.runner.dtype).min)
        return mask[None, None]
