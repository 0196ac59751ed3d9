"""The yardstick: one full forward per candidate and continuation, no cache, no batch.

Deliberately plain. It reads full logits instead of chosen rows, so that the fast paths are
held to what `model(input_ids).logits` says and to nothing of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ecs_plugins.lm.scoring.request import Ids, Path, Scored
from ecs_plugins.lm.scoring.runner import Runner


def score(runner: Runner, prefix: Ids, paths: Sequence[Path]) -> Scored:
    """Log-probabilities of every path's scored tokens, in nats."""
    logprobs, computed = [], 0
    kwargs = {"use_cache": False} if "use_cache" in runner.takes else {}
    for path in paths:
        fed = (prefix + path.ids)[:-1]
        logits = runner.model(input_ids=runner.ids(fed), **kwargs).logits[0]
        rows = torch.tensor([len(prefix) + i - 1 for i in path.scored], device=logits.device)
        targets = torch.tensor([path.ids[i] for i in path.scored], device=logits.device)
        chosen = torch.log_softmax(logits[rows].float(), dim=-1)
        logprobs.append(chosen.gather(1, targets[:, None])[:, 0].cpu().numpy())
        if path.comparison is not None:
            path.comparison.see(path.ids, logits, rows.tolist())
        computed += len(fed)
    return Scored(logprobs, computed)
