"""Call templates: what a template gets, what fuses behind it, what stays a library call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import author, explain, space, write
from hipwright.engine.templates import registry as calls
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.offers import KernelCall, NotLowered, Offer, Output
from tests.engine.harness import Op, captured, check, compare, kernels_in, reference, run


def naive(body: CallBody) -> list[EmittedKernel]:
    """One thread an element of a product: the smallest template there is."""
    a, b = body.operands
    assert a is not None
    assert b is not None
    k = body.kernel(names="i row col acc p")
    block = body.knob("NAIVE_BLOCK", 64, (32, 64, 128), "threads of a naive product")
    rows, columns = (k.size(s) for s in body.group.space)
    k.line(f"const {k.kind} i = blockIdx.x * ({k.kind}){block} + threadIdx.x;")
    k.line(f"if (i >= {rows} * {columns}) return;")
    k.line(f"const {k.kind} row = i / {columns}, col = i % {columns};")
    k.line("float acc = 0.0f;")
    k.open(f"for ({k.kind} p = 0; p < {k.size(a.shape[1])}; ++p)")
    k.line(f"acc += {k.load(a, ['row', 'p'])} * {k.load(b, ['p', 'col'])};")
    k.close()
    k.epilogue("acc", ["row", "col"])
    total = f"{rows} * {columns}"
    return [k.finish(f"cdiv({total}, {block})", block, block)]


def offer(call: KernelCall) -> Offer | None:
    a, b = call.args[:2]
    if a.dtype == "float64":
        raise NotLowered("no doubles here")
    return Offer("naive", naive, [a, b], [Output(call.shape(0))], default=True)


def two(call: KernelCall) -> Offer | None:
    """aminmax of everything as one thread: several outputs, no epilogue, memory between two kernels."""

    def text(body: CallBody) -> list[EmittedKernel]:
        (x,) = body.operands
        assert x is not None
        copy = body.temporary("copy", x.shape, "float32", zero=True)
        first = body.kernel("copy", "i")
        first.open(f"for ({first.kind} i = 0; i < {first.size(x.shape[0])}; ++i)")
        first.written.add(copy)
        first.line(f"{first.pointer(copy)}[i] += {first.load(x, ['i'])};")
        first.close()
        last = body.kernel("find", "i low high x")
        last.line(f"float low = {last.pointer(copy)}[0], high = low;")
        last.open(f"for ({last.kind} i = 1; i < {last.size(x.shape[0])}; ++i)")
        last.line(f"const float x = {last.pointer(copy)}[i];")
        last.line("low = x < low ? x : low;")
        last.line("high = x > high ? x : high;")
        last.close()
        last.store(0, "0", "low")
        last.store(1, "0", "high")
        return [first.finish("1", "1", "1"), last.finish("1", "1", "1")]

    outputs = [Output([]) if meta is not None else None for meta in call.outs]
    return Offer("serial", text, [call.args[0]], outputs, default=True, whole=True)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(calls.TEMPLATES, "mm", [offer])
    monkeypatch.setitem(calls.TEMPLATES, "aminmax", [two])
    yield


A = torch.randn(7, 12, generator=torch.Generator().manual_seed(0))
B = torch.randn(12, 10, generator=torch.Generator().manual_seed(1))


class Fused(torch.nn.Module):
    """A prologue on both sides, an epilogue with a residual, and the plain product for another reader."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Any:
        y = torch.mm(a * 2, b.t().relu())
        return F.silu(y + r), y


def test_prologue_epilogue_and_the_product_are_one_kernel() -> None:
    model, inputs = Fused(), [A, torch.randn(10, 12), torch.randn(7, 10)]
    text = check(model, inputs, other=[A[:3], torch.randn(5, 12), torch.randn(3, 5)])
    assert kernels_in(text) == 1
    assert "silu(" in text


def test_readers_at_other_places_get_a_kernel_of_their_own() -> None:
    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
            y = torch.mm(a, b)
            return y.t().contiguous(), y.softmax(1), y.roll(1, 0)

    text = check(Model(), [A, B])
    assert kernels_in(text) == 2  # the product, and one that reads it three ways


def test_a_chain_of_products_puts_the_activation_behind_the_first() -> None:
    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
            return torch.mm(F.gelu(torch.mm(a, b)), b.t()).reshape(-1)

    graph = captured(Model(), [A, B])
    kernels = explain(graph)["kernels"]
    assert [k["mapping"] for k in kernels] == ["call:naive", "call:naive"]
    assert "gelu" in kernels[0]["nodes"]
    check(Model(), [A, B])


def test_a_dear_operand_is_computed_once() -> None:
    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
            return torch.mm(torch.tanh(torch.sigmoid(torch.sin(a))), b)

    assert kernels_in(check(Model(), [A, B])) == 2


def test_the_choice_is_in_the_space_and_decides() -> None:
    graph = captured(Fused(), [A, torch.randn(10, 12), torch.randn(7, 10)])
    options = space(graph)
    assert options["call:mm"].options == ("library", "naive")
    assert options["call:mm"].default == "naive"
    assert options["NAIVE_BLOCK"].kind == "knob"
    assert "torch.mm" in write(graph, {"call:mm": "library"}).text
    assert "call:mm is library" in explain(graph, {"call:mm": "library"})["library"]["mm"]["reason"]
    assert write(graph, {"NAIVE_BLOCK": 128}).knobs == {"NAIVE_BLOCK": 128}


def test_a_template_that_declines_says_why() -> None:
    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor) -> Any:
            return torch.mm(a, a)

    graph = captured(Model(), [torch.randn(4, 4, dtype=torch.float64)])
    assert explain(graph)["library"]["mm"]["reason"] == "no doubles here"
    assert "call:mm" not in space(graph)


def test_several_kernels_and_outputs() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            low, high = torch.aminmax(x)
            return low * 2, high

    model, x = Model(), torch.randn(33)
    graph = captured(model, [x])
    program = write(graph)
    expected, native, _ = reference(model, [x])
    got, _ = run(program, model, [x])
    compare(got, expected, native)
    assert kernels_in(program.text) == 3
    assert "torch.zeros" in program.text


def test_a_library_call_reads_an_input_that_no_view_of_other_sizes_can_hold() -> None:
    """Rows of a transposed input lie apart: a view of all elements in one dimension does not exist."""

    def counts(x: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(16, dtype=torch.int64)
        return zeros.scatter_add(0, x.flatten(), torch.ones_like(x.flatten()))

    x = torch.randint(0, 16, (13, 71))
    model = Op(counts)
    text = check(
        model,
        [x],
        choices={"call:scatter_add": "library"},
        library=["aten.scatter_add.default"],
        other=[x.t().contiguous().t()],
    )
    assert "scatter_add" in text


@pytest.mark.parametrize("dim", [-1, -2, -3, 0, 1, 2])
def test_a_library_call_reads_a_slice_along_any_dimension(dim: int) -> None:
    """A dimension counted from the end is the tensor's, not the view's first."""
    table = torch.randn(6, 6)

    def looked_up(x: torch.Tensor) -> torch.Tensor:
        kept = torch.cumsum(x, 1)
        return torch.matmul(kept.narrow(dim, 1, 2).transpose(-1, -2), kept.narrow(dim, 1, 2)).tanh() + table[0, 0]

    x = torch.randn(4, 5, 6)
    choices = {key: "library" for key in space(captured(Op(looked_up), [x])) if key.startswith("call:")}
    text = check(Op(looked_up), [x], choices=choices, library=["aten.matmul.default"])
    assert "torch.matmul(" in text


@pytest.mark.parametrize("pool", [F.avg_pool2d, F.avg_pool1d])
def test_an_operand_stored_for_a_refused_kernel_is_stored_for_the_library(pool: Any) -> None:
    """A window operator stores a costly operand before its kernel is refused; the library's call reads it anew."""
    x = torch.randn(6, 5, 9, generator=torch.Generator().manual_seed(4))
    index = torch.randint(0, 6, (4, 5, 9), generator=torch.Generator().manual_seed(5))
    model = Op(lambda x, index: pool(x.exp().gather(0, index), 2, 1, 1, True, True))
    graph = captured(model, [x, index])
    made = author(graph, {key: "generic" for key in space(graph) if key.startswith("call:")})
    assert len(made.explanation["library"]) == 1
    expected, native, _ = reference(model, [x, index])
    compare(run(made.program, model, [x, index])[0], expected, native)


class Latents(torch.nn.Module):
    """A layer of learned vectors, one set for each sample, as in Perceiver."""

    def __init__(self) -> None:
        super().__init__()
        self.latents, self.layer = torch.nn.Parameter(torch.randn(32, 512)), torch.nn.Linear(512, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.latents.expand(x.shape[0], -1, -1)) @ x


def test_parameters_in_the_size_of_an_input_are_made_at_every_call() -> None:
    stays = {"choices": {"call:linear": "library"}, "library": ["aten.linear.default"]}
    text = check(Latents(), [torch.randn(16, 5, 7)], other=[torch.randn(9, 5, 7)], **stays)
    assert "def prepare" not in text
