"""float32 products in bfloat16 parts against the products that they stand for."""

import pytest
import torch
from families import built
from torch import nn

from ecs_plugins.lm.scoring import products
from ecs_plugins.lm.scoring.cascade import twin_of
from ecs_plugins.lm.scoring.layers import DecoderLayer
from ecs_plugins.lm.scoring.plan import AttentionPlan
from ecs_plugins.lm.scoring.products import (
    MIN_ROWS,
    Linears,
    multiplied_as_they_are,
    product_of_bfloat16,
    split,
)
from ecs_plugins.lm.scoring.scratch import Scratch

ROWS = MIN_ROWS + 3
library = pytest.mark.skipif(
    product_of_bfloat16() is None, reason="no fast product of bfloat16 matrices on this machine"
)


def in_float32(a, b, out, add):
    """What the library's product computes, on any machine."""
    assert (a.dtype, b.dtype, out.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    product = a.float() @ b.float().t()
    out.copy_(out + product if add else product)


@pytest.fixture(params=["library", "in float32"])
def calls(request, monkeypatch):
    """The product in use, and what it was called with."""
    seen = []
    product = product_of_bfloat16() if request.param == "library" else in_float32
    if product is None:
        pytest.skip("no fast product of bfloat16 matrices on this machine")

    def counted(a, b, out, add):
        seen.append((tuple(a.shape), tuple(b.shape), add))
        product(a, b, out, add)

    monkeypatch.setattr(products, "product_of_bfloat16", lambda: counted)
    return seen


def linear(width, outputs, *, bias=False, seed=0, rounded=True):
    draw = torch.Generator().manual_seed(seed)
    made = nn.Linear(width, outputs, bias=bias)
    weight = torch.randn(outputs, width, generator=draw)
    with torch.no_grad():
        made.weight.copy_(weight.bfloat16() if rounded else weight)
        if bias:
            made.bias.copy_(torch.randn(outputs, generator=draw))
    return made.requires_grad_(False)


def rows_of(number=ROWS, width=70, seed=1):
    return torch.randn(number, width, generator=torch.Generator().manual_seed(seed))


def exactly(module, rows):
    wanted = rows.double() @ module.weight.double().t()
    return wanted if module.bias is None else wanted + module.bias.double()


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e30])
def test_the_parts_of_a_number_add_up_to_it(scale) -> None:
    rows = rows_of() * scale
    assert torch.equal(split(rows, Scratch()).double().sum(0), rows.double())


def test_the_parts_of_rows_with_gaps_add_up_to_them() -> None:
    wide = rows_of(width=200)
    rows = wide[:, 30:100]
    assert torch.equal(split(rows, Scratch()).double().sum(0), rows.double())


@pytest.mark.parametrize("bias", [False, True])
def test_several_maps_give_what_float64_gives(calls, bias) -> None:
    maps = [linear(70, outputs, bias=bias, seed=outputs) for outputs in (16, 8, 40)]
    rows = rows_of()
    for found, module in zip(Linears(*maps)(rows, Scratch()), maps, strict=True):
        wanted = exactly(module, rows)
        assert (found - wanted).abs().max() <= 1e-6 * wanted.abs().max()
    assert len(calls) == 3


@pytest.mark.parametrize("bias", [False, True])
def test_a_map_is_added_to_what_is_there(calls, bias) -> None:
    module, rows = linear(70, 24, bias=bias), rows_of()
    states = rows_of(width=24, seed=3)
    wanted = states.double() + exactly(module, rows)
    Linears(module).add_to(states, rows, Scratch())
    assert (states - wanted).abs().max() <= 1e-6 * wanted.abs().max()
    assert len(calls) == 3


def test_a_map_is_added_to_columns_as_it_is(calls) -> None:
    module, rows = linear(70, 24), rows_of()
    states = rows_of(24, ROWS, seed=3).t()
    wanted = states.double() + exactly(module, rows)
    Linears(module).add_to(states, rows, Scratch())
    assert (states - wanted).abs().max() <= 1e-6 * wanted.abs().max()
    assert not calls


@library
def test_the_error_is_no_larger_than_that_of_a_float32_product() -> None:
    module, rows = linear(1024, 64), rows_of(512, 1024)
    wanted = exactly(module, rows)
    (ours,) = Linears(module)(rows, Scratch())
    theirs = module(rows)
    assert (ours - wanted).square().mean() <= (theirs - wanted).square().mean()


@pytest.mark.parametrize(
    ("module", "rows"),
    [
        (linear(70, 8, rounded=False), rows_of()),
        (linear(70, 8), rows_of(MIN_ROWS - 1)),
        (linear(70, 8).double(), rows_of().double()),
        (linear(70, 8).bfloat16(), rows_of().bfloat16()),
    ],
    ids=["other weights", "few rows", "float64", "bfloat16"],
)
def test_what_gains_nothing_is_multiplied_as_it_is(calls, module, rows) -> None:
    (found,) = Linears(module)(rows, Scratch())
    assert torch.equal(found, module(rows))
    assert not calls


def test_weights_that_are_changed_later_are_multiplied_as_they_are(calls) -> None:
    module, rows = linear(70, 100), rows_of()
    maps = Linears(module)
    maps(rows, Scratch())
    module.weight.data.mul_(1 + 2**-12)
    calls.clear()
    assert torch.equal(maps(rows, Scratch())[0], module(rows))
    assert not calls


def test_splitting_can_be_left_out_for_comparison(calls) -> None:
    module, rows = linear(70, 8), rows_of()
    maps = Linears(module)
    with multiplied_as_they_are():
        assert torch.equal(maps(rows, Scratch())[0], module(rows))
    assert not calls
    maps(rows, Scratch())
    assert calls


def test_a_row_that_is_not_a_number_stays_one(calls) -> None:
    rows = rows_of()
    rows[5, 3] = torch.nan
    (found,) = Linears(linear(70, 8))(rows, Scratch())
    assert found[5].isnan().all()
    assert found[:5].isfinite().all()


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_a_layer_in_parts_gives_the_same_and_keeps_its_keys(calls, name) -> None:
    model = built(name)
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()
    twin = twin_of(model)
    states = rows_of(width=32)[None]
    rotary = next(m for n, m in twin.named_modules() if n.endswith("rotary_emb"))
    positions = rotary(states, torch.arange(ROWS)[None])
    layer = next(
        m.forward for m in twin.modules() if isinstance(m.__dict__.get("forward"), DecoderLayer)
    )

    def run(forward):
        plan = AttentionPlan(own=[(0, ROWS, 1)], longest=ROWS, layers=2, captured=[])
        options = {"position_embeddings": positions, "cascade_plan": plan, "attention_mask": None}
        with torch.inference_mode():
            return forward(states.clone(), use_cache=False, **options), plan.captured[0]

    wanted, their_keys = run(layer.original)
    found, keys = run(layer)
    assert len(calls) == 3 * 4
    for ours, theirs in ((found, wanted), *zip(keys, their_keys, strict=True)):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_a_product_that_is_wrong_is_not_used() -> None:
    assert products._is_right(in_float32)
    assert not products._is_right(lambda a, b, out, add: None)
    assert not products._is_right(lambda a, b, out, add: in_float32(a, b, out, not add))


@pytest.mark.parametrize("missing", ["tiles", "library", "function"])
def test_without_the_library_rows_are_multiplied_as_they_are(monkeypatch, missing) -> None:
    def load(_path):
        if missing == "library":
            raise OSError("no such file")
        return object()

    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"amx_bf16": missing != "tiles"}, raising=False
    )
    monkeypatch.setattr(products.ctypes, "CDLL", load)
    assert products.product_of_bfloat16.__wrapped__() is None
