"""float32 products of many rows on processors that multiply bfloat16 many times as fast.

A float32 number is the sum of three bfloat16 numbers: its 24 bits of significand are 8 + 8 + 8.
Checkpoints are usually stored in bfloat16, and their weights loaded as float32 are bfloat16
numbers still. Then

    x W = x1 W + x2 W + x3 W,   x = x1 + x2 + x3,

whose single products are exact in float32 and are added up in float32: what a float32 product
gives, with fewer roundings. On the tiles of a processor with AMX the three take about half the
time of one in float32. Maps of the same rows share the splitting of ``x``.

PyTorch has no product of bfloat16 matrices with a float32 result on a CPU; oneMKL, which its
x86 builds multiply with, has one. It is used where it can be found, is fast, and gives the right
numbers. Everywhere else, and for weights that are not bfloat16 numbers, rows are multiplied as
they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

import torch
from torch import Tensor, nn

from ecs_plugins.lm.scoring.fused import row_blocks
from ecs_plugins.lm.scoring.scratch import Scratch

MIN_ROWS = 256
"""Rows from which on splitting pays."""

_PARTS = 3
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
_SAMPLED = 64
_RIGHT = 1e-6
_SPLITTING: ContextVar[bool] = ContextVar("splitting", default=True)

AddProduct = Callable[[Tensor, Tensor, Tensor, bool], None]
"""``(a, b, out, add)`` is ``out = a @ b.T`` or ``out += a @ b.T``: bfloat16 in, float32 out."""


@contextlib.contextmanager
def multiplied_as_they_are() -> Iterator[None]:
    """Within, and in this thread, no row is split: the reference of what splitting gives."""
    before = _SPLITTING.set(False)
    try:
        yield
    finally:
        _SPLITTING.reset(before)


class Linears:
    """Linear maps of the same rows.

    Args:
        *maps: With the same input width.
    """

    def __init__(self, *maps: nn.Linear) -> None:
        self._maps = maps

    def __call__(self, rows: Tensor, scratch: Scratch) -> tuple[Tensor, ...]:
        """The result of every map.

        Args:
            rows: ``[n, width]``.
            scratch: Memory; the results may lie in it, until the next call with it.

        Returns:
            ``[n, outputs]`` for each, not always contiguous.
        """
        if not _in_float32(rows):
            return tuple(linear(rows) for linear in self._maps)
        sizes = [linear.out_features for linear in self._maps]
        out = scratch.take("results", rows.shape[0], sum(sizes))
        results = torch.split(out, sizes, dim=1)
        done = self._in_parts(rows, out, scratch, add=False)
        for linear, result in zip(self._maps, results, strict=True):
            if not done:
                torch.mm(rows, linear.weight.t(), out=result)
            if linear.bias is not None:
                result.add_(linear.bias)
        return tuple(results)

    def add_to(self, states: Tensor, rows: Tensor, scratch: Scratch) -> None:
        """``states += map(rows)``, without a result in between; for a single map.

        Args:
            states: ``[n, outputs]``; overwritten.
            rows: ``[n, width]``.
            scratch: Memory.
        """
        (linear,) = self._maps
        in_rows = states.stride(1) == 1  # as the library's product writes them
        if not (in_rows and self._in_parts(rows, states, scratch, add=True)):
            states.addmm_(rows, linear.weight.t())
        if linear.bias is not None:
            states.add_(linear.bias)

    @functools.cached_property
    def _product(self) -> AddProduct | None:
        """The library's product, if the weights are bfloat16 numbers."""
        weights = [linear.weight for linear in self._maps]
        product = product_of_bfloat16()
        if product is None or any(weight.dtype != torch.float32 for weight in weights):
            return None
        blocks = (block for weight in weights for (block,) in row_blocks(weight))
        exact = all(torch.equal(block, block.bfloat16().float()) for block in blocks)
        return product if exact else None

    def _in_parts(self, rows: Tensor, out: Tensor, scratch: Scratch, *, add: bool) -> bool:
        """Multiply with all weights, without biases; False if that gains nothing."""
        if rows.shape[0] < MIN_ROWS or not _in_float32(rows) or not _SPLITTING.get():
            return False
        product = self._product
        weights = None if product is None else self._narrowed(scratch)
        if product is None or weights is None:
            return False
        for part in reversed(split(rows, scratch).unbind()):  # small summands first
            product(part, weights, out, add)
            add = True
        return True

    def _narrowed(self, scratch: Scratch) -> Tensor | None:
        """All weights in bfloat16, ``[outputs, width]``.

        None if somebody has changed them since; that is looked for in a sample of their rows.
        """
        sizes = [linear.out_features for linear in self._maps]
        width = self._maps[0].in_features
        out = scratch.take("weights", sum(sizes), width, dtype=torch.bfloat16)
        for linear, narrow in zip(self._maps, torch.split(out, sizes), strict=True):
            narrow.copy_(linear.weight)
            step = max(1, linear.out_features // _SAMPLED)
            if not torch.equal(linear.weight[::step], narrow[::step].float()):
                return None
        return out


def _in_float32(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype == torch.float32


def split(rows: Tensor, scratch: Scratch) -> Tensor:
    """Three bfloat16 parts ``[3, n, width]`` whose sum is ``rows``, ``[n, width]`` in float32."""
    parts = scratch.take("parts", _PARTS, *rows.shape, dtype=torch.bfloat16)
    for block, first, second, third in row_blocks(rows, *parts):
        rest = scratch.take("rest", *block.shape)
        back = scratch.take("back", *block.shape)
        first.copy_(block)
        back.copy_(first)
        torch.sub(block, back, out=rest)
        second.copy_(rest)
        back.copy_(second)
        third.copy_(rest.sub_(back))
    return parts


@functools.cache
def product_of_bfloat16() -> AddProduct | None:
    """OneMKL's product, where it is there, fast and right."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if not capabilities.get("amx_bf16"):
        return None
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        function = library.cblas_gemm_bf16bf16f32
    except (OSError, AttributeError):
        return None
    product = _bound(function)
    return product if _is_right(product) else None


def _bound(function: Callable[..., None]) -> AddProduct:
    """The C function, called with tensors."""
    integer, real = ctypes.c_int, ctypes.c_float

    def matrix(of: Tensor) -> tuple[ctypes.c_void_p, ctypes.c_int]:
        return ctypes.c_void_p(of.data_ptr()), integer(of.stride(0))

    def product(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        layout = (_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED)
        sizes = (a.shape[0], b.shape[0], a.shape[1])
        function(
            *map(integer, layout + sizes),
            real(1),
            *matrix(a),
            *matrix(b),
            real(add),
            *matrix(out),
        )

    return product


def _is_right(product: AddProduct) -> bool:
    """Whether it gives what float64 gives, on one example as large as it is used for."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 515, generator=generator).bfloat16() for n in (MIN_ROWS + 5, 131))
    out = torch.ones(a.shape[0], b.shape[0])
    product(a, b, out, True)
    wanted = 1 + a.double() @ b.double().t()
    return bool((out - wanted).abs().max() <= _RIGHT * wanted.abs().max())
