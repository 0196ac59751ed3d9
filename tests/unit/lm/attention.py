"""Forests, prefixes and attention under a dense mask in float64, for tests of attention."""

import torch

from ecs_plugins.lm.scoring.arena import Arena, LayerShape, StateShape
from ecs_plugins.lm.scoring.cascade import CascadePlan
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.tensors import together_on_device
from ecs_plugins.lm.scoring.twin import planned_attention

CPU = torch.device("cpu")
HEADS, KV_HEADS, WIDTH = 4, 2, 8


def drawn(seed, heads, rows, width=WIDTH):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, rows, width, generator=generator)


def prefix_of(seed, length, width=WIDTH):
    """A prefix of so many tokens, in an arena of its own."""
    if not length:
        return PrefixState()
    states = [drawn(seed + number, KV_HEADS, length, width) for number in (0, 1)]
    return placed(tuple(range(length)), states, CPU, torch.float32)


def placed(ids, states, device, dtype):
    """A prefix with these keys and values of one layer."""
    keys, values = (state.to(device, dtype) for state in states)
    layer = LayerShape(keys.shape[1], keys.shape[3], values.shape[3])
    shape = StateShape((layer,), dtype, torch.device(device))
    arena = Arena(shape, pages=1, page=len(ids))
    rows = torch.arange(len(ids), device=device)
    arena.write(0, (keys, values), rows, rows)
    return PrefixState().append(ids, arena, arena.take(len(ids)))


def row_of(rows, width=WIDTH):
    """Query, key and value of a packed row."""
    heads = (HEADS, KV_HEADS, KV_HEADS)
    return tuple(drawn(n, h, rows, width) for n, h in enumerate(heads, start=1))


def dense(groups, query, key, value):
    """Attention in which a row sees its prefix and what stands before it on its paths."""
    rows, width = query.shape[2:]
    out = torch.zeros(rows, HEADS, width, dtype=torch.float64)
    offset = 0
    for forest, prefix in groups:
        pieces = [(key[:, :, :0], value[:, :, :0]), *(piece.layer(0) for piece in prefix.pieces)]
        past = [torch.cat(states, dim=2) for states in zip(*pieces, strict=True)]
        for n, path in enumerate(forest.paths):
            length = path[-1].depth + path[-1].length
            way = [offset + row for row in forest.rows(n, range(length))]
            keys, values = (
                torch.cat((p, s[:, :, way]), dim=2).double()[0].repeat_interleave(2, dim=0)
                for p, s in zip(past, (key, value), strict=True)
            )
            for i, row in enumerate(way):
                seen = len(prefix.ids) + i + 1
                weights = query[0, :, row].double().unsqueeze(1) @ keys[:, :seen].transpose(1, 2)
                share = (weights * width**-0.5).softmax(dim=-1)
                out[row] = (share @ values[:, :seen])[:, 0]
        offset += len(forest.tokens)
    return out


def planned(kind, groups, device=CPU):
    """A plan, ready for its only layer, and how many rows it has."""
    plan = kind(groups)
    plan.receive(together_on_device(plan.numbers(), device) if plan.numbers() else [])
    return plan, sum(len(forest.tokens) for forest, _ in groups)


def attention(groups, device=CPU, dtype=torch.float32, width=WIDTH, kind=CascadePlan):
    """What a row of groups gets on a device, and what it should get, both in float64."""
    there = [(forest, moved(prefix, device, dtype)) for forest, prefix in groups]
    plan, rows = planned(kind, there, device)
    states = [state.to(dtype) for state in row_of(rows, width)]
    on_device = (state.to(device) for state in states)
    got, _ = planned_attention(torch.nn.Module(), *on_device, None, attention_plan=plan)
    return got[0].double().cpu(), dense(groups, *(state.float() for state in states))


def moved(prefix, device, dtype):
    """The same prefix on a device, in a dtype."""
    out = PrefixState()
    for piece in prefix.pieces:
        there = placed(piece.ids, piece.layer(0), device, dtype)
        out = PrefixState((*out.pieces, *there.pieces))
    return out
