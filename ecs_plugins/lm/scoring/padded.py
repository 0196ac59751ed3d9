"""Scoring with the model's own attention: a reference, and two variants for special models.

* `score_by_reference`: one full forward per candidate and continuation. It reads full logits, so
  that the fast paths are compared with ``model(input_ids).logits``.
* `score_padded`: right-padded batches without a cache. A causal model does not see padding on the
  right, whatever its layers are: sliding windows, ALiBi, recurrent states.
* `MaskedForward`: packed rows under a tree mask, for attention that flash kernels do not know
  (soft-capped scores, sinks). As exact as a cascade, and quadratic in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.arena import KeyValues, StateShape
from ecs_plugins.lm.scoring.packs import TokenBudget, run_in_packs
from ecs_plugins.lm.scoring.prefix import PrefixPiece, joined
from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, PathScores
from ecs_plugins.lm.scoring.runner import Runner, logprobs_of
from ecs_plugins.lm.scoring.tensors import (
    Numbers,
    Readings,
    from_device,
    together_on_device,
)
from ecs_plugins.lm.scoring.twin import Groups, Writes, positions_of, shape_of, tokens_of


def _without_cache(runner: Runner) -> dict[str, Any]:
    return {"use_cache": False} if "use_cache" in runner.takes else {}


def score_by_reference(
    runner: Runner,
    prefix: Ids,
    paths: Sequence[Path],
) -> PathScores:
    """Return the log-probabilities of every path's scored tokens, in nats."""
    logprobs = []
    computed = 0
    readings = Readings()
    fixed = _without_cache(runner)
    for path in paths:
        fed = prefix + path.ids  # with the last token, which a scaling by length counts
        input_ids = runner.ids(fed)
        logits = runner.model(input_ids=input_ids, **fixed).logits[0]
        before = len(prefix) - 1
        asked = [before + index for index in path.scored]
        tokens = [path.ids[index] for index in path.scored]
        rows = torch.tensor(asked, device=logits.device)
        targets = torch.tensor(tokens, device=logits.device)
        distributions = torch.log_softmax(logits[rows].float(), dim=-1)
        chosen = distributions.gather(1, targets[:, None])
        logprobs.append(from_device(chosen[:, 0]))
        if path.comparison is not None:
            path.comparison.see(path.ids, logits, rows, readings)
        readings.read()
        computed += len(fed)
    return PathScores(logprobs, computed)


def score_padded(
    runner: Runner,
    prefix: Ids,
    paths: Sequence[Path],
    budget: TokenBudget,
) -> PathScores:
    """Return the log-probabilities of every path's scored tokens, in nats."""
    run = _PaddedRun(runner, prefix, paths)
    order = sorted(range(len(paths)), key=run.length, reverse=True)
    bases = [index for index in order if paths[index].is_base]
    others = [index for index in order if index not in bases]
    for part in (bases, others):
        run_in_packs(part, run.take, run.run, budget, runner.name)
    run.readings.read()
    results = [run.results[index] for index in range(len(paths))]
    return PathScores(results, run.computed)


class _PaddedRun:
    """One call of `score_padded`: its paths and its results."""

    def __init__(
        self,
        runner: Runner,
        prefix: Ids,
        paths: Sequence[Path],
    ) -> None:
        self.runner = runner
        self.prefix = prefix
        self.paths = paths
        self.readings = Readings()
        self.results: dict[int, Logprobs] = {}
        self.computed = 0

    def length(self, index: int) -> int:
        """Return the number of computed tokens of a path."""
        path = self.paths[index]
        return len(self.prefix) + len(path.ids) - 1

    def take(
        self,
        left: Sequence[int],
        tokens: int,
    ) -> tuple[int, int]:
        """Return the size of the next batch; its first path, the longest, sets its width."""
        width = self.length(left[0])
        number = 1
        while number < len(left):
            more = number + 1
            rows = more * len(self._rows(left[:more]))
            too_long = more * width > tokens
            if too_long or rows > self.runner.max_rows:
                break
            number = more
        return number, number * width

    def run(self, indices: Sequence[int]) -> None:
        """Score one batch."""
        width = max(self.length(index) for index in indices)
        ids = []
        mask = []
        for index in indices:
            fed = (self.prefix + self.paths[index].ids)[:-1]
            padding = (0,) * (width - len(fed))
            ids.append(fed + padding)
            mask.append((1,) * len(fed) + padding)
        keep = self._rows(indices)
        logits = self.runner.logits(
            self.runner.ids(ids),
            keep,
            attention_mask=self.runner.ids(mask),
            **_without_cache(self.runner),
        ).flatten(0, 1)
        place = {row: number for number, row in enumerate(keep)}
        wanted: list[int] = []
        targets: list[int] = []
        for number, index in enumerate(indices):
            path = self.paths[index]
            first = number * len(keep)
            asked = self._asked(path)
            wanted.extend(first + place[row] for row in asked)
            targets.extend(path.ids[scored] for scored in path.scored)
        rows, tokens = together_on_device([wanted, targets], logits.device)
        at = 0
        for index in indices:
            path = self.paths[index]
            end = at + len(path.scored)
            if path.comparison is not None:
                own_rows = rows[at:end]
                path.comparison.see(path.ids, logits, own_rows, self.readings)
            at = end
        found = logprobs_of(logits, tokens, rows)
        receive = partial(self._receive, indices)
        self.readings.add(found, receive)
        self.computed += len(indices) * width

    def _asked(self, path: Path) -> list[int]:
        """Return the rows that predict the scored tokens of a path."""
        before = len(self.prefix) - 1
        return [before + index for index in path.scored]

    def _rows(self, indices: Sequence[int]) -> list[int]:
        rows: set[int] = set()
        for index in indices:
            rows.update(self._asked(self.paths[index]))
        return sorted(rows)

    def _receive(
        self,
        indices: Sequence[int],
        logprobs: Logprobs,
    ) -> None:
        at = 0
        for index in indices:
            end = at + len(self.paths[index].scored)
            self.results[index] = logprobs[at:end]
            at = end


class MaskedForward:
    """A `PackedForward` through the model's own attention."""

    max_tokens = 768
    """Tokens of a row from which on it costs more than two shorter ones."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._shape: StateShape | None = None

    @property
    def shape(self) -> StateShape:
        """Shape of the model's keys and values of a token, found by running one."""
        if self._shape is None:
            from transformers import DynamicCache

            cache = DynamicCache()
            self.runner.logits(
                self.runner.ids((0,)),
                (0,),
                past_key_values=cache,
                use_cache=True,
            )
            states = _states_of(cache)
            layers = tuple(shape_of(each) for each in states)
            keys, _ = states[0]
            self._shape = StateShape(layers, keys.dtype, self.runner.device)
        return self._shape

    def __call__(
        self,
        groups: Groups,
        rows: Sequence[int],
        *,
        numbers: Sequence[Numbers] = (),
        writes: Writes | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the forests one after the other in one row (see `TwinForward`)."""
        from transformers import DynamicCache

        pieces = _pieces_of(groups)
        past = sum(len(piece.ids) for piece in pieces)
        # Made without the configuration, so that no layer forgets what lies outside its window.
        cache = DynamicCache(joined(pieces)) if past else DynamicCache()
        with_cache: dict[str, Any] = {}
        if past or writes is not None:
            with_cache["past_key_values"] = cache
        device = self.runner.device
        own: list[Numbers] = [tokens_of(groups), positions_of(groups)]
        input_ids, position_ids = together_on_device(own, device)
        logits = self.runner.logits(
            input_ids.unsqueeze(0),
            rows,
            attention_mask=self._mask(groups, pieces, past),
            position_ids=position_ids.unsqueeze(0),
            use_cache=bool(with_cache),
            **with_cache,
        )[0]
        if writes is not None:
            rows_written, slots = together_on_device([writes.rows, writes.slots], device)
            written = rows_written + past
            for layer, states in enumerate(_states_of(cache)):
                writes.arena.write(layer, states, written, slots)
        return logits, together_on_device(numbers, device) if numbers else []

    def _mask(
        self,
        groups: Groups,
        pieces: Sequence[PrefixPiece],
        past: int,
    ) -> Tensor:
        """Return the additive tree mask, ``[1, 1, rows, past + rows]``."""
        size = sum(len(forest.tokens) for forest, _ in groups)
        ends = torch.empty(size, dtype=torch.long)
        after = torch.zeros(size, past, dtype=torch.bool)
        offset = 0
        for forest, prefix in groups:
            rows = slice(offset, offset + len(forest.tokens))
            for node in forest.nodes:
                own = slice(offset + node.start, offset + node.stop)
                ends[own] = offset + node.end
            at = 0
            for piece in pieces:
                end = at + len(piece.ids)
                after[rows, at:end] = piece in prefix.pieces
                at = end
            offset = rows.stop
        columns = torch.arange(size)[None, :]
        lines = torch.arange(size)[:, None]
        not_later = columns <= lines
        not_past = lines < ends[None, :]
        seen = torch.cat((after, not_later & not_past), dim=1)
        hidden = ~seen.to(self.runner.device)
        dtype = self.runner.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        mask.masked_fill_(hidden, torch.finfo(dtype).min)
        return mask[None, None]


def _pieces_of(groups: Groups) -> list[PrefixPiece]:
    """Return the pieces of all prefixes, each once."""
    pieces: dict[PrefixPiece, None] = {}
    for _, prefix in groups:
        pieces.update(dict.fromkeys(prefix.pieces))
    return list(pieces)


def _states_of(cache: Any) -> list[KeyValues]:
    """Return keys and values of all layers of a cache of transformers."""
    return [(keys, values) for keys, values, *_ in cache]
