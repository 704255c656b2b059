"""One authored object, and which errors become a program for the captured sizes: unsupported sizes, nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
import torch

from hipwright.capture.graph import Graph
from hipwright.engine import author, explain, space, write
from hipwright.engine.ir.sizes import SizeNotSupported, SizeReader, evaluate
from hipwright.engine.templates import registry
from hipwright.engine.templates.offers import KernelCall, Offer, Output
from tests.engine.harness import Op, captured


def test_the_three_answers_are_of_one_object() -> None:
    graph, choices = captured(Op(lambda x: torch.softmax(x.relu(), -1)), [torch.randn(70, 130)]), {"fuse": False}
    made = author(graph, choices)
    assert (made.program, made.explanation) == (write(graph, choices), explain(graph, choices))
    assert author(graph).space == space(graph)
    assert len(made.explanation["kernels"]) > len(explain(graph)["kernels"])


def test_the_package_is_cheap_to_import() -> None:
    heavy = "import sys, hipwright.engine; print([m for m in sys.modules if 'torch' in m or 'engine.' in m])"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "[]\n"


def with_size(size: str) -> Graph:
    """relu of a vector whose result has a size of another form."""
    graph = captured(Op(lambda x: x.relu()), [torch.randn(70)])
    (symbol,) = graph.symbols
    (node,) = graph.nodes
    (meta,) = node.outs
    assert meta is not None
    meta = msgspec.structs.replace(meta, shape=(size.replace("N", symbol.name),))
    return msgspec.structs.replace(graph, nodes=(msgspec.structs.replace(node, outs=(meta,)),))


def test_an_unsupported_size_gives_a_program_for_the_captured_sizes() -> None:
    made = author(with_size("N if N else 1"))
    assert made.explanation["static"]
    assert "x_0.shape[0] == 70" in made.program.text
    assert not author(with_size("N")).explanation["static"]


@pytest.mark.parametrize(("size", "why"), [("s.real", "cannot read"), ("max(2, 3)", "no symbol")])
def test_sizes_that_cannot_be_read(size: str, why: str) -> None:
    with pytest.raises(SizeNotSupported, match=why):
        SizeReader(["s"]).read(size)


def test_sizes_that_divide_by_zero() -> None:
    reader = SizeReader(["s"])
    size = reader.read("7 // (s - 3)")
    with pytest.raises(SizeNotSupported, match="divides by zero"):
        reader.evaluate_derived({"s": 3})
    hints = {"s": 4}
    reader.evaluate_derived(hints)
    assert evaluate(size, hints) == 7
    with pytest.raises(SizeNotSupported, match="// 0"):
        evaluate((reader.read("s") + 1) // reader.read("s - 3"), {"s": 3, "s_out": 0})


@pytest.mark.parametrize("error", [KeyError, ValueError, ZeroDivisionError])
def test_a_templates_own_error_is_no_specialisation(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(body: Any) -> list[Any]:
        raise error("a bug")

    def offer(call: KernelCall) -> Offer:
        return Offer("broken", broken, call.args[:2], [Output(call.shape(0))], default=True)

    monkeypatch.setitem(registry.TEMPLATES, "mm", [offer])
    graph = captured(Op(torch.mm), [torch.randn(8, 5), torch.randn(5, 6)])
    assert graph.symbols
    with pytest.raises(error, match="a bug"):
        write(graph)
