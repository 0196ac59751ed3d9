"""Forests, prefixes and attention under a dense mask in float64, for tests of attention."""

import torch

from ecs_plugins.lm.scoring.cascade import AttentionPlan, cascade_attention
from ecs_plugins.lm.scoring.prefix import PrefixState

HEADS, KV_HEADS, WIDTH = 4, 2, 8


def drawn(seed, heads, rows, width=WIDTH):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, rows, width, generator=generator)


def prefix_of(seed, length, width=WIDTH, layers=1):
    if not length:
        return PrefixState()
    layer = tuple(drawn(seed + n, KV_HEADS, length, width) for n in (0, 1))
    return PrefixState().append(tuple(range(length)), (layer,) * layers)


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
        pieces = [(key[:, :, :0], value[:, :, :0]), *(piece.layers[0] for piece in prefix.pieces)]
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


def planned(groups):
    plan = AttentionPlan()
    offset = 0
    for forest, prefix in groups:
        plan.add(forest, prefix, offset)
        offset += len(forest.tokens)
    return plan, offset


def attention(groups, device="cpu", dtype=torch.float32, width=WIDTH):
    """What a row of groups gets on a device, and what it should get, both in float64."""
    there = [(forest, moved(prefix, device, dtype)) for forest, prefix in groups]
    plan, rows = planned(there)
    states = [state.to(dtype) for state in row_of(rows, width)]
    on_device = (state.to(device) for state in states)
    got, _ = cascade_attention(torch.nn.Module(), *on_device, None, cascade_plan=plan)
    return got[0].double().cpu(), dense(groups, *(state.float() for state in states))


def moved(prefix, device, dtype):
    out = PrefixState()
    for ids, layers in prefix.pieces:
        there = tuple((k.to(device, dtype), v.to(device, dtype)) for k, v in layers)
        out = out.append(ids, there)
    return out
