"""The fast path: the prefix is computed once, everything behind it as packed token trees.

The paths of a pack form a tree: equal heads (the same passage before several answers, the same
opening of two passages) are one branch. Its tokens stand in one row, in depth-first order,
where a token's descendants are the interval behind it; so the tree mask is two comparisons. No
padding, no copy of the prefix per candidate. Positions restart behind the prefix.

The last token of the prefix is not cached but is the root of every tree, because it predicts
the first token behind an empty candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ecs_plugins.lm.scoring.budget import TokenBudget, run_in_packs
from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, Scored, common_length
from ecs_plugins.lm.scoring.runner import Runner, is_out_of_memory, target_logprobs

if TYPE_CHECKING:
    from transformers import DynamicCache

KeyValues = tuple[tuple[torch.Tensor | None, torch.Tensor | None], ...]


class TokenTree:
    """Paths with a common root, packed depth-first into one row.

    Args:
        paths: Sorted token sequences (equal heads next to each other).

    Attributes:
        tokens: The token at each node.
        depths: Its distance from the root.
        ends: One past its last descendant.
        nodes: For every path, the node at each of its depths.
    """

    def __init__(self, paths: Sequence[Sequence[int]]) -> None:
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.ends: list[int] = []
        self.nodes: list[list[int]] = []
        last: Sequence[int] = ()
        stack: list[int] = []
        for path in paths:
            shared = common_length(last, path)
            self._close(stack[shared:])
            stack = stack[:shared]
            for depth in range(shared, len(path)):
                stack.append(len(self.tokens))
                self.tokens.append(path[depth])
                self.depths.append(depth)
                self.ends.append(-1)
            self.nodes.append(list(stack))
            last = path
        self._close(stack)

    def _close(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self.ends[node] = len(self.tokens)

    def mask(self, past: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Additive mask ``[1, 1, tokens, past + tokens]``.

        A node sees itself, its ancestors and all of the cached past.
        """
        node = torch.arange(len(self.tokens), device=device)
        end = torch.tensor(self.ends, device=device)
        seen = (node[None, :] <= node[:, None]) & (node[:, None] < end[None, :])
        mask = torch.zeros(len(self.tokens), past + len(self.tokens), dtype=dtype, device=device)
        mask[:, past:].masked_fill_(~seen, torch.finfo(dtype).min)
        return mask[None, None]


def score(runner: Runner, prefix: Ids, paths: Sequence[Path], budget: TokenBudget) -> Scored:
    """Log-probabilities of every path's scored tokens, in nats."""
    past, root = prefix[:-1], prefix[-1:]
    cached = _prefill(runner, past)
    # From the root on: the token at depth d predicts the one at depth d + 1.
    full = [root + path.ids for path in paths]
    results: dict[int, Logprobs] = {}
    computed = len(past)

    def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
        number, size, rows = 0, 0, 0
        last: Ids = ()
        for index in left:
            fed = full[index][:-1]
            more = len(fed) - common_length(last, fed)
            rows += len(paths[index].scored)
            if number and (size + more > tokens or rows > runner.max_rows):
                break
            number, size, last = number + 1, size + more, fed
        return number, size

    def run(indices: Sequence[int]) -> None:
        nonlocal computed
        tree = TokenTree([full[i][:-1] for i in indices])
        asked = [
            [tree.nodes[n][len(root) + i - 1] for i in paths[index].scored]
            for n, index in enumerate(indices)
        ]
        keep = sorted({node for nodes in asked for node in nodes})
        logits = _forward(runner, tree, keep, cached, len(past))
        row = {node: n for n, node in enumerate(keep)}
        flat = target_logprobs(
            logits[[row[node] for nodes in asked for node in nodes]],
            [paths[index].ids[i] for index in indices for i in paths[index].scored],
        )
        at = 0
        for index in indices:
            number = len(paths[index].scored)
            results[index] = flat[at : at + number]
            at += number
        computed += len(tree.tokens)

    order = sorted(range(len(paths)), key=lambda index: paths[index].ids)
    run_in_packs(order, take, run, budget, runner.name)
    return Scored([results[i] for i in range(len(paths))], computed)


def _prefill(runner: Runner, past: Ids) -> KeyValues:
    """Keys and values of the prefix, per layer; nothing for an empty one.

    In one piece if memory allows, else in ever smaller ones.
    """
    piece = len(past)
    while past:
        # Without the configuration, so that no layer forgets what lies outside its window.
        cache = _cache(())
        try:
            for at in range(0, len(past), piece):
                ids = runner.ids(past[at : at + piece])
                runner.logits(ids, [ids.shape[1] - 1], past_key_values=cache, use_cache=True)
        except Exception as error:
            if not is_out_of_memory(error) or piece == 1:
                raise
            piece = (piece + 1) // 2
        else:
            return tuple((layer[0], layer[1]) for layer in cache)
    return ()


def _forward(
    runner: Runner, tree: TokenTree, keep: Sequence[int], cached: KeyValues, past: int
) -> torch.Tensor:
    """Logits ``[len(keep), vocabulary]`` of chosen nodes."""
    positions = runner.ids([past + depth for depth in tree.depths])
    with_past = {"past_key_values": _cache(cached)} if cached else {}
    return runner.logits(
        runner.ids(tree.tokens),
        keep,
        attention_mask=tree.mask(past, runner.dtype, runner.device),
        position_ids=positions,
        use_cache=bool(cached),
        **with_past,
    )[0]


def _cache(layers: KeyValues) -> DynamicCache:
    from transformers import DynamicCache

    # A fresh cache per forward: appending makes new tensors and leaves the prefix's untouched.
    return DynamicCache(layers) if layers else DynamicCache()
