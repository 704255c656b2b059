"""Convolutions whose windows tile the input, as plain products: patch embeddings, and transposed ones by phases.

Where a window's stride is its size, as in the patch embedding of vision transformers (Dosovitskiy et al., ICLR 2021),
each input is read once: the windows are the input under another view, and the convolution is a linear layer.

A transposed convolution whose window is a multiple of its stride, k = T s along each axis, is the same turned round.
Output s q + r of the result without its crop is the sum over j < T of x[q - j] w[r + s j]: one product whose columns
are (channel, phase r) and whose terms are (channel, the T inputs at q). No zero between inputs is multiplied, nothing
is added atomically, and where T = 1 the input itself is the operand. The phases are the sub-pixels of Shi et al. (CVPR
2016). The library's kernels for such convolutions begin at few channels or write by scattered sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from hipwright.capture.graph import Graph, Meta, Node, Size
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.ir.operators import STORED
from hipwright.engine.knobs import SPLIT, Choice, Value
from hipwright.engine.rewrite.node_writer import PACK, NodeWriter, Rewrite, argument, plus, times

FEW_CHANNELS, FEW_FLOAT_CHANNELS = 32, 16
"""Inputs of a window's element from which on the library's channels-last kernels have whole vectors to multiply, and
those of float32, from which on it multiplies as fast without them: 3 x 3 x 3 of stride 3 of 16 channels to 64 took an
H200 53 us, the product 44 and the copy of its windows 33.
"""
LEAST_TERMS, LEAST_OPERATIONS = 64, 1e9
"""Terms, and operations, of a product from which on it is the default. Round figures, not measured."""
_FORMS = {f"aten.conv{n}d.default" for n in (1, 2, 3)} | {"aten.conv2d.padding", "aten.conv1d.padding"}
_TRANSPOSED = {"aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"}
_FLOATS = HALVES | {"float32"}


def window_products(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such convolutions as products where that is chosen, what could be chosen).

    The choice is `product:<convolution>`. By default they are products in runs for NVIDIA GPUs.
    """
    if choices.get("library"):
        return graph, {}
    writer = NodeWriter(graph)

    def possible(node: Node) -> Rewrite | None:
        if (window := _window(writer, node)) is None:
            return None
        write = _write_phases if window.transposed else _write_patches
        return bool(choices.get(SPLIT)) and window.usual(writer), partial(write, writer, node, window)

    return writer.rewritten("product", possible, choices)


@dataclass(frozen=True)
class _Window:
    """A convolution: its operands' metas and, for each axis, kernel, stride and crop."""

    x: Meta
    weight: Meta
    out: Meta
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    transposed: bool

    @property
    def taps(self) -> tuple[int, ...]:
        """How many inputs meet an output of a transposed convolution, along each axis."""
        return tuple(k // s for k, s in zip(self.kernel, self.stride, strict=True))

    def usual(self, writer: NodeWriter) -> bool:
        """Whether the product is the default."""
        inputs, outputs = int(self.weight.shape[0 if self.transposed else 1]), int(self.out.shape[1])
        area = prod(self.kernel)
        if not self.transposed:
            terms, columns = inputs * area, outputs
            work = 2.0 * writer.hints(self.out.shape) * terms
            few = FEW_CHANNELS if self.x.dtype in HALVES else FEW_FLOAT_CHANNELS
            return inputs < few and terms >= LEAST_TERMS and work >= LEAST_OPERATIONS
        terms, columns = inputs * prod(self.taps), outputs * prod(self.stride)
        work = 2.0 * writer.hints(self.x.shape) * area * outputs
        alone = prod(self.taps) == 1
        positions = writer.hints(self.x.shape[2:])
        even = not (terms % PACK or columns % PACK or (alone and positions % PACK))
        fits = alone or len(self.kernel) == 1  # of more axes the library has channels-last kernels
        return self.x.dtype in HALVES and even and fits and terms >= LEAST_TERMS and work >= LEAST_OPERATIONS


def _window(writer: NodeWriter, node: Node) -> _Window | None:
    """The convolution of a node, if it is a product; else None."""
    transposed = node.op in _TRANSPOSED
    if node.op not in _FORMS and not transposed:
        return None
    args = [*node.args, *([None] * (8 - len(node.args)))]
    x, weight, out = writer.meta(args[0]), writer.meta(args[1]), node.outs[0]
    if x is None or weight is None or out is None or node.kwargs:
        return None
    n, sides = len(weight.shape) - 2, [s for s in weight.shape if isinstance(s, int)]
    if {x.dtype, weight.dtype, out.dtype} - _FLOATS or len({x.dtype, weight.dtype}) > 1 or len(sides) != n + 2:
        return None
    if len(x.shape) != n + 2 or not isinstance(x.shape[1], int):
        return None
    stride, padding = _numbers(args[3], n, 1), _numbers(args[4], n, 0)
    added, groups, dilation = (args[5], args[6], args[7]) if transposed else (0, args[6], args[5])
    rates, more = _numbers(dilation, n, 1), _numbers(added, n, 0)
    if None in (stride, padding, rates, more) or groups not in (None, 1) or prod(sides) == 0:
        return None
    assert stride is not None and padding is not None and rates is not None and more is not None
    kernel = tuple(sides[2:])
    if any(rate > 1 and k > 1 for rate, k in zip(rates, kernel, strict=True)) or prod(stride) == 1:
        return None
    found = _Window(x, weight, out, kernel, stride, padding, transposed)
    if not transposed:
        return found if stride == kernel and not any(padding) else None
    whole = all(k % s == 0 for k, s in zip(kernel, stride, strict=True))
    return found if whole and all(a <= p for a, p in zip(more, padding, strict=True)) else None


def _numbers(value: Any, n: int, default: int) -> tuple[int, ...] | None:
    """An argument of one number or n as n numbers; None for one of sizes, or for padding of the same size."""
    if value == "valid":
        return (0,) * n
    listed = [default] if value in (None, []) else list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(v, int) for v in listed):
        return None
    return tuple(listed * n) if len(listed) == 1 else tuple(listed)


def _write_patches(writer: NodeWriter, node: Node, w: _Window) -> None:
    """The windows as rows [image, position, (channel, tap)], a linear layer, and its result with channels first."""
    x, weight = node.args[:2]
    bias = node.args[2] if len(node.args) > 2 else None
    n, dtype = len(w.kernel), w.x.dtype
    batch, channels, outputs, steps = w.x.shape[0], int(w.weight.shape[1]), int(w.weight.shape[0]), w.out.shape[2:]
    windows = {2 + k: side for k, side in enumerate(w.kernel)}
    value, _ = _unfolded(writer, node, x, [batch, channels, *w.x.shape[2:]], windows, [1, 1, *w.stride])
    shape = [batch, *steps, channels, *w.kernel]
    order = [0, *range(2, 2 + n), 1, *range(2 + n, 2 + 2 * n)]
    value = writer.add(node, "aten.permute.default", [value, order], shape, dtype=dtype)
    terms, rows = channels * prod(w.kernel), times(*steps)
    value = writer.add(
        node,
        "aten.reshape.default",
        [value, [argument(batch), argument(rows), terms]],
        [batch, rows, terms],
        dtype=dtype,
    )
    flat = writer.view(node, weight, [outputs, terms], dtype=dtype)
    made = writer.add(node, "aten.linear.default", [value, flat, bias], [batch, rows, outputs], dtype=dtype)
    made = writer.add(node, "aten.transpose.int", [made, 1, 2], [batch, outputs, rows], dtype=dtype)
    writer.view(node, made, w.out.shape, dtype=dtype, last=True)


def _unfolded(
    writer: NodeWriter, node: Node, x: Any, shape: Sequence[Size], windows: Mapping[int, int], steps: Sequence[int]
) -> tuple[Any, list[Size]]:
    """(x with windows of so many elements along some dimensions, which become its last ones, its shape).

    windows, steps: elements of a window, and from one window to the next, by dimension.
    """
    value, now = x, list(shape)
    for dim, window in windows.items():
        size, step = now[dim], steps[dim]
        count: Size = plus(size, 1 - window)
        if step != 1:  # windows side by side
            count = size // step if isinstance(size, int) else f"({size})//{step}"
        now[dim] = count
        now.append(window)
        value = writer.add(node, "aten.unfold.default", [value, dim, window, step], now, dtype=_dtype(writer, x))
    return value, now


def _dtype(writer: NodeWriter, value: Any) -> str:
    meta = writer.meta(value)
    assert meta is not None
    return meta.dtype


def _write_phases(writer: NodeWriter, node: Node, w: _Window) -> None:
    """The product of all phases, its columns side by side as outputs, and what the padding crops."""
    bias = node.args[2] if len(node.args) > 2 else None
    n, dtype, batch, outputs = len(w.kernel), w.x.dtype, w.x.shape[0], int(w.weight.shape[1])
    steps = [plus(size, t - 1) for size, t in zip(w.x.shape[2:], w.taps, strict=True)]
    write = _phases_alone if prod(w.taps) == 1 else _phases_of_windows
    value, order = write(writer, node, w, steps)
    shape: list[Size] = [batch, outputs]
    for step, stride in zip(steps, w.stride, strict=True):
        shape += [step, stride]
    value = writer.add(node, "aten.permute.default", [value, order], shape, dtype=dtype)
    whole = [times(step, stride) for step, stride in zip(steps, w.stride, strict=True)]
    crops = [k for k in range(n) if w.padding[k]]
    now = [batch, outputs, *whole]
    last = bias is None and not crops
    sizes = [argument(size) for size in now]
    value = writer.add(node, "aten.reshape.default", [value, sizes], now, dtype=dtype, last=last)
    for axis in crops:
        now[2 + axis] = w.out.shape[2 + axis]
        begin, end = w.padding[axis], argument(plus(w.out.shape[2 + axis], w.padding[axis]))
        last = bias is None and axis == crops[-1]
        value = writer.add(node, "aten.slice.Tensor", [value, 2 + axis, begin, end], now, dtype=dtype, last=last)
    if bias is not None:
        shaped = writer.view(node, bias, [1, outputs, *([1] * n)], dtype=dtype)
        writer.add(node, "aten.add.Tensor", [value, shaped], w.out.shape, dtype=dtype, last=True)


def _phases_alone(writer: NodeWriter, node: Node, w: _Window, steps: Sequence[Size]) -> tuple[Any, list[int]]:
    """(the product [image, output, phases, positions], the order of its dimensions as outputs) where each input meets
    one window: the input itself is an operand.
    """
    x, weight = node.args[:2]
    n, dtype, batch = len(w.kernel), w.x.dtype, w.x.shape[0]
    inputs, outputs, rows = int(w.weight.shape[0]), int(w.weight.shape[1]), times(*steps)
    columns = outputs * prod(w.stride)
    flat = writer.view(node, weight, [inputs, columns], dtype=dtype)
    flat = writer.add(node, "aten.transpose.int", [flat, 0, 1], [columns, inputs], dtype=dtype)
    value = writer.view(node, x, [batch, inputs, rows], dtype=dtype)
    value = writer.add(node, "aten.matmul.default", [flat, value], [batch, columns, rows], dtype=dtype)
    value = writer.view(node, value, [batch, outputs, *w.stride, *steps], dtype=dtype)
    return value, [0, 1, *(place for k in range(n) for place in (2 + n + k, 2 + k))]


def _phases_of_windows(writer: NodeWriter, node: Node, w: _Window, steps: Sequence[Size]) -> tuple[Any, list[int]]:
    """(the product [image, positions, phases, output], the order of its dimensions as outputs) where several inputs
    meet at a position: they are the rows of a copy [image, position, (taps, channel)] of the channels-last image.
    """
    n, dtype, batch = len(w.kernel), w.x.dtype, w.x.shape[0]
    inputs, outputs, rows = int(w.weight.shape[0]), int(w.weight.shape[1]), times(*steps)
    wide = {1 + k: t for k, t in enumerate(w.taps) if t > 1}
    shape = [batch, *w.x.shape[2:], inputs]
    value = writer.add(node, "aten.permute.default", [node.args[0], [0, *range(2, 2 + n), 1]], shape, dtype=dtype)
    value = writer.add(node, STORED, [value], shape, dtype=dtype)
    amounts = [0, 0, *(t - 1 for t in reversed(w.taps) for _ in range(2))]
    shape = [batch, *(plus(size, 2 * (t - 1)) for size, t in zip(w.x.shape[2:], w.taps, strict=True)), inputs]
    value = writer.add(node, "aten.constant_pad_nd.default", [value, amounts, 0.0], shape, dtype=dtype)
    value, _ = _unfolded(writer, node, value, shape, wide, [1] * (n + 1))
    order = [*range(1 + n), *range(2 + n, 2 + n + len(wide)), 1 + n]
    shape = [batch, *steps, *wide.values(), inputs]
    value = writer.add(node, "aten.permute.default", [value, order], shape, dtype=dtype)
    terms, columns = inputs * prod(w.taps), outputs * prod(w.stride)
    sizes = [argument(batch), argument(rows), terms]
    value = writer.add(node, "aten.reshape.default", [value, sizes], [batch, rows, terms], dtype=dtype)
    flat = _weights_by_phases(writer, node, w)
    value = writer.add(node, "aten.linear.default", [value, flat, None], [batch, rows, columns], dtype=dtype)
    value = writer.view(node, value, [batch, *steps, *w.stride, outputs], dtype=dtype)
    return value, [0, 1 + 2 * n, *(place for k in range(n) for place in (1 + k, 1 + n + k))]


def _weights_by_phases(writer: NodeWriter, node: Node, w: _Window) -> Any:
    """The weights [(phases, output), (taps, channel)]; the first tap of a position meets its earliest input."""
    n, dtype, inputs, outputs = len(w.kernel), w.x.dtype, int(w.weight.shape[0]), int(w.weight.shape[1])
    split: list[Size] = [inputs, outputs]
    for taps, stride in zip(w.taps, w.stride, strict=True):
        split += [taps, stride]
    value = writer.view(node, node.args[1], split, dtype=dtype)
    places = [2 + 2 * k for k in range(n)]
    value = writer.add(node, "aten.flip.default", [value, places], split, dtype=dtype)
    order = [*(place + 1 for place in places), 1, *places, 0]
    value = writer.add(node, "aten.permute.default", [value, order], [split[k] for k in order], dtype=dtype)
    shape = [outputs * prod(w.stride), inputs * prod(w.taps)]
    return writer.add(node, "aten.reshape.default", [value, shape], shape, dtype=dtype)


__all__ = ["window_products"]
