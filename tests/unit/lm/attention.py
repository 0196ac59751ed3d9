"""Forests, prefixes and attention under a dense mask in float64, for tests of attention."""

import torch

from ecs_plugins.lm.scoring.arena import Arena, StateShape
from ecs_plugins.lm.scoring.cascade import CascadePlan
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.tensors import together_on_device
from ecs_plugins.lm.scoring.twin import planned_attention, shape_of

CPU = torch.device("cpu")
HEADS, KV_HEADS, WIDTH = 4, 2, 8


def drawn(seed, heads, rows, width=WIDTH):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, rows, width, generator=generator)


def prefix_of(seed, length, width=WIDTH):
    """A prefix of so many tokens, in an arena of its own."""
    if not length:
        return PrefixState()
    keys = drawn(seed, KV_HEADS, length, width)
    values = drawn(seed + 1, KV_HEADS, length, width)
    ids = tuple(range(length))
    return placed(ids, (keys, values), CPU, torch.float32)


def placed(ids, states, device, dtype):
    """A prefix with these keys and values of one layer."""
    keys, values = (state.to(device, dtype) for state in states)
    layer = shape_of((keys, values))
    shape = StateShape((layer,), dtype, torch.device(device))
    arena = Arena(shape, pages=1, page=len(ids))
    rows = torch.arange(len(ids), device=device)
    arena.write(0, (keys, values), rows, rows)
    slots = arena.take(len(ids))
    return PrefixState().append(ids, arena, slots)


def row_of(rows, width=WIDTH):
    """Query, key and value of a packed row."""
    query = drawn(1, HEADS, rows, width)
    key = drawn(2, KV_HEADS, rows, width)
    value = drawn(3, KV_HEADS, rows, width)
    return query, key, value


def dense(groups, query, key, value):
    """Attention in which a row sees its prefix and its ancestors."""
    rows, width = query.shape[2:]
    out = torch.zeros(rows, HEADS, width, dtype=torch.float64)
    offset = 0
    for forest, prefix in groups:
        nothing = (key[:, :, :0], value[:, :, :0])
        kept = [piece.layer(0) for piece in prefix.pieces]
        fields = zip(nothing, *kept, strict=True)
        past = [torch.cat(states, dim=2) for states in fields]
        for n, path in enumerate(forest.paths):
            length = path[-1].depth + path[-1].length
            rows_of_path = forest.rows(n, range(length))
            way = [offset + row for row in rows_of_path]
            keys = on_way(past[0], key, way)
            values = on_way(past[1], value, way)
            for i, row in enumerate(way):
                seen = len(prefix.ids) + i + 1
                own = query[0, :, row].double()
                asked = own.unsqueeze(1)
                products = asked @ keys[:, :seen].transpose(1, 2)
                share = (products * width**-0.5).softmax(dim=-1)
                attended = share @ values[:, :seen]
                out[row] = attended[:, 0]
        offset += len(forest.tokens)
    return out


def on_way(past, own, way):
    """Keys or values of a path in float64, for every head."""
    states = torch.cat((past, own[:, :, way]), dim=2)
    times = HEADS // KV_HEADS
    return states[0].double().repeat_interleave(times, dim=0)


def planned(kind, groups, device=CPU):
    """A plan, ready for its only layer, and how many rows it has."""
    plan = kind(groups)
    numbers = plan.numbers()
    if numbers:
        plan.receive(together_on_device(numbers, device))
    rows = sum(len(forest.tokens) for forest, _ in groups)
    return plan, rows


def attention(
    groups,
    device=CPU,
    dtype=torch.float32,
    width=WIDTH,
    kind=CascadePlan,
):
    """Return result and reference of a row of groups on a device, in float64."""
    there = []
    for forest, prefix in groups:
        there.append((forest, moved(prefix, device, dtype)))
    plan, rows = planned(kind, there, device)
    states = [state.to(dtype) for state in row_of(rows, width)]
    on_device = [state.to(device) for state in states]
    module = torch.nn.Module()
    got, _ = planned_attention(module, *on_device, None, attention_plan=plan)
    exact = [state.float() for state in states]
    wanted = dense(groups, *exact)
    return got[0].double().cpu(), wanted


def moved(prefix, device, dtype):
    """Return the prefix on a device, in a dtype."""
    out = PrefixState()
    for piece in prefix.pieces:
        states = piece.layer(0)
        there = placed(piece.ids, states, device, dtype)
        out = PrefixState((*out.pieces, *there.pieces))
    return out


def attend_one_by_one(query, key, value, sequences, scale):
    """Attention of a card's kernels on a processor, one sequence at a time."""
    rows, heads, _ = query.shape
    groups = heads // key.shape[1]
    out = query.new_empty(rows, heads, value.shape[2])
    lse = torch.empty(heads, rows, dtype=torch.float32)
    query_starts = sequences.query_starts.tolist()
    key_starts = sequences.key_starts.tolist()
    for number in range(len(query_starts) - 1):
        own = slice(query_starts[number], query_starts[number + 1])
        seen = slice(key_starts[number], key_starts[number + 1])
        queries = _by_head(query[own], 1)
        keys = _by_head(key[seen], groups)
        values = _by_head(value[seen], groups)
        products = queries @ keys.transpose(1, 2)
        products *= scale
        if sequences.causal:
            more = keys.shape[1] - queries.shape[1]
            everything = torch.ones(products.shape[1:], dtype=torch.bool)
            hidden = everything.triu(more + 1)
            products.masked_fill_(hidden, -torch.inf)
        lse[:, own] = products.logsumexp(dim=-1)
        attended = products.softmax(dim=-1) @ values
        out[own] = attended.transpose(0, 1).to(out.dtype)
    return out, lse


def _by_head(states, times):
    """Heads first, in float32, with repeated heads, of ``[tokens, heads, width]``."""
    by_head = states.transpose(0, 1).float()
    return by_head.repeat_interleave(times, dim=0)
