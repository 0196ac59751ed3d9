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
from ecs_plugins.lm.scoring.prefix import KeyValues, PrefixPiece, PrefixState, joined
from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, PathScores
from ecs_plugins.lm.scoring.runner import Runner, TokenBudget, run_in_packs, target_logprobs
from ecs_plugins.lm.scoring.tensors import on_device


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

    max_tokens = 768
    """Tokens of a row from which on it costs more than two shorter ones."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def __call__(
        self,
        groups: Sequence[tuple[Forest, PrefixState]],
        rows: Sequence[int],
        *,
        capture: Sequence[Sequence[int]] = (),
    ) -> tuple[torch.Tensor, list[KeyValues]]:
        """Run the forests one behind the other in one row; ``rows`` are ascending."""
        from transformers import DynamicCache

        pieces = list({id(p): p for _, prefix in groups for p in prefix.pieces}.values())
        past = sum(len(piece.ids) for piece in pieces)
        # Made without the configuration, so that no layer forgets what lies outside its window.
        cache = DynamicCache(joined(pieces).layers) if past else DynamicCache()
        with_cache: dict[str, Any] = {"past_key_values": cache} if past or capture else {}
        logits = self.runner.logits(
            self.runner.ids([token for forest, _ in groups for token in forest.tokens]),
            rows,
            attention_mask=self._mask(groups, pieces, past),
            position_ids=self.runner.ids(
                [prefix.length + depth for forest, prefix in groups for depth in forest.depths]
            ),
            use_cache=bool(with_cache),
            **with_cache,
        )[0]
        runs = [on_device(run, self.runner.device) + past for run in capture]
        layers = [(keys, values) for keys, values, *_ in cache]
        return logits, [
            tuple((k.index_select(2, run), v.index_select(2, run)) for k, v in layers)
            for run in runs
        ]

    def _mask(
        self, groups: Sequence[tuple[Forest, PrefixState]], pieces: Sequence[PrefixPiece], past: int
    ) -> torch.Tensor:
        """Additive, ``[1, 1, rows, past + rows]``."""
        size, device = sum(len(forest.tokens) for forest, _ in groups), self.runner.device
        ends = torch.empty(size, dtype=torch.long)
        behind = torch.zeros(size, past, dtype=torch.bool)
        offset = 0
        for forest, prefix in groups:
            for node in forest.nodes:
                ends[offset + node.start : offset + node.stop] = offset + node.end
            at, own = 0, {id(piece) for piece in prefix.pieces}
            for piece in pieces:
                end = at + len(piece.ids)
                behind[offset : offset + len(forest.tokens), at:end] = id(piece) in own
                at = end
            offset += len(forest.tokens)
        row = torch.arange(size)
        seen = (row[None, :] <= row[:, None]) & (row[:, None] < ends[None, :])
        seen = torch.cat((behind, seen), dim=1).to(device)
        mask = torch.zeros(seen.shape, dtype=self.runner.dtype, device=device)
        return mask.masked_fill_(~seen, torch.finfo(self.runner.dtype).min)[None, None]
