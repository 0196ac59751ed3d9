"""Right-padded batches without a cache: for models whose prefix cannot simply be shared.

Padding on the right needs no shift of positions, and a causal model does not see it, whatever
its layers are: sliding windows, ALiBi, recurrent states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, Scored
from ecs_plugins.lm.scoring.runner import Runner, TokenBudget, run_in_packs, target_logprobs


def score(runner: Runner, prefix: Ids, paths: Sequence[Path], budget: TokenBudget) -> Scored:
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
            if path.comparison is not None:
                path.comparison.see(path.ids, logits[n], wanted)
        computed += len(indices) * width

    order = sorted(range(len(paths)), key=length, reverse=True)
    bases = [index for index in order if paths[index].is_base]
    for part in (bases, [index for index in order if index not in bases]):
        run_in_packs(part, take, run, budget, runner.name)
    return Scored([results[i] for i in range(len(paths))], computed)
