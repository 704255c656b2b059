"""Operators that take functions: attention with functions of its scores, torch.cond, torch.vmap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.flex_attention import flex_attention as flex_operator
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from hipwright.api.live.forward.watch import CallWatch
from hipwright.capture.forward import capture, exported
from hipwright.capture.value_dependent import at_node
from hipwright.engine import author
from hipwright.errors import TaskError
from hipwright.higher_order import OperatorMode, attention_dense, both_sides
from hipwright.program.lower.live_bytes import LiveBytes
from hipwright.program.lower.trace import OpTrace
from hipwright.task import open_task
from hipwright.task.host.double_precision import float64
from hipwright.task.host.made_elements import MadeElements
from hipwright.task.host.modes.meta_shapes import MetaShapes
from hipwright.task.host.modes.operator_watch import OperatorWatch
from hipwright.task.host.modes.value_checks import OperandChecks
from hipwright.task.host.random_draws import DrawRecorder
from hipwright.verify.worker.seeded import HostDraws
from tests import warm
from tests.engine.capturing import captured
from tests.engine.harness import Op, compare, reference, run

TEXT = """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

flex_attention = torch.compile(flex_attention)

def near(b, h, i, j):
    return (i >= j) & (i - j < 3)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(2))
    def forward(self, q, k, v):
        def biased(score, b, h, i, j):
            return score + self.slopes[h] * (i - j)
        mask = create_block_mask(near, None, None, q.shape[2], k.shape[2], device=q.device)
        return flex_attention(q, k, v, score_mod=biased, block_mask=mask)

def get_inputs():
    return [torch.randn(2, 2, 6, 4) for _ in range(3)]
"""


@pytest.fixture(autouse=True)
def _traces_torch() -> None:
    """A call under a mode has the compiler leave alone torch's code around an operator."""
    torch._dynamo.reset()


class Biased(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(2))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(q, k, v, lambda score, b, h, i, j: score + self.slopes[h] * (i - j), mask)


def attention(q: Any, k: Any, v: Any, slopes: Any) -> Any:
    """What `Biased` computes, in float64."""
    places = torch.arange(q.shape[2])
    apart = places[:, None] - places
    scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5 + slopes.double()[:, None, None] * apart
    return scores.masked_fill(apart < 0, -torch.inf).softmax(-1) @ v.double()


def operator(q: Any, k: Any, v: Any) -> Any:
    mask = (*(None,) * 12, lambda b, h, i, j: i >= j)
    return flex_operator(q, k, v, lambda score, *_: score * 2, mask, 0.5, {})[0]


def called() -> Any:
    """Results of operators that take functions, as torch's own dispatcher is given them."""
    q, k, v = torch.arange(288).view(3, 2, 2, 6, 4).cos()
    chosen = torch.cond(q.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (q,))
    return operator(q, k, v), chosen, scan(lambda kept, row: (kept + row, kept * 2), q[0, 0, 0] * 0, q[0, 0])[1]


def watch() -> CallWatch:
    return CallWatch(torch.device("cpu"), [], [])


MODES: list[Any] = [OperandChecks, OperatorWatch, MetaShapes, MadeElements, DrawRecorder, OpTrace, LiveBytes, HostDraws]


@pytest.mark.parametrize("made", [*MODES, watch], ids=lambda made: made.__name__)
def test_a_mode_lets_them_compute(made: Any) -> None:
    expected = called()
    with torch.no_grad(), made():
        found = called()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_mode_sees_the_operators_of_the_dense_form_once() -> None:
    class Names(OperatorMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
            self.names.append(str(func))
            return super()._call(func, args, kwargs)

    with torch.no_grad(), Names() as outer, Names() as inner:
        operator(*torch.randn(3, 2, 2, 6, 4))
    assert outer.names == inner.names and outer.names.count("aten._safe_softmax.default") == 1
    assert outer.names.count("aten.bmm.default") == 2, "of scores and of values"


def test_attention_in_float64() -> None:
    model, given = Biased().double(), torch.randn(3, 2, 2, 6, 4).double().unbind(0)
    with torch.no_grad(), attention_dense(), float64():
        found = model(*given)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, attention(*given, model.slopes), rtol=1e-12, atol=1e-12)


def test_attention_becomes_a_program_for_all_sizes() -> None:
    model = Biased()
    before = torch.nn.attention.flex_attention.flex_attention_hop
    graph = captured(model, list(torch.randn(3, 2, 2, 6, 4)))
    assert torch.nn.attention.flex_attention.flex_attention_hop is before
    assert graph.symbols and all(node.op.startswith(("aten.", "getitem")) for node in graph.nodes)
    program = author(graph, {}).program
    for shape in ((3, 2, 2, 6, 4), (3, 1, 2, 13, 4)):
        given = list(torch.randn(shape))
        with torch.no_grad(), attention_dense():
            native = model(*given)
        compare(run(program, model, given)[0], attention(*given, model.slopes), native)


def test_a_task_with_attention_has_a_float64_reference(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(TEXT)
    handle = open_task(path, warm.host())
    try:
        outputs, _, info = handle.reference(handle.inputs("given", 0), handle.init_state(0))
        assert (outputs.dtype, info["reference_dtype"]) == ("float64", "float64")
    finally:
        handle.close()


def choice(x: Any, flag: Any) -> Any:
    left, right = torch.cond(flag.any(), lambda x: (x.sin(), x), lambda x: (x.cos(), x * 2), (x,))
    return left + right


def test_a_choice_by_a_tensor_computes_both_sides() -> None:
    model, x = Op(choice), torch.randn(5, 4)
    before = torch.cond
    graph = captured(model, [x, torch.tensor([True, False])])
    assert torch.cond is before
    program = author(graph, {}).program
    for flag in (torch.tensor([True, False]), torch.tensor([False, False])):
        expected, native, _ = reference(model, [x, flag])
        compare(run(program, model, [x, flag])[0], expected, native)


def test_shapes_that_one_side_refuses_are_refused_without_values() -> None:
    weight = torch.empty(4, 4, device="meta")
    with both_sides(), pytest.raises(RuntimeError, match="same reduction dim"):
        torch.cond(torch.empty((), dtype=torch.bool, device="meta"), lambda x: x @ weight, torch.sin, (weight[:, :3],))


def test_vmap_is_traced_below_it() -> None:
    """torch.export has its operators as those of one row, and then of all: it is no dimension that is lost."""
    model = Op(lambda x: torch.vmap(lambda row: torch.vmap(lambda one: row.mul(2).sum() + one)(row).softmax(-1))(x))
    graph = captured(model, [torch.randn(7, 5)])
    assert graph.symbols and all(node.op.startswith("aten.") for node in graph.nodes)
    x = torch.randn(9, 5)
    expected, native, _ = reference(model, [x])
    compare(run(author(graph, {}).program, model, [x])[0], expected, native)


@pytest.mark.parametrize("model", [Biased(), Op(lambda q, k, v: torch.vmap(lambda row: row.softmax(-1))(q + k + v))])
def test_an_exported_program_of_them_is_refused_in_one_line(model: torch.nn.Module) -> None:
    with pytest.raises(
        TaskError, match=r"^cannot capture: (\S+ line \d+: `.*`: )?torch.export does not trace torch.vmap"
    ):
        exported(model, list(torch.randn(3, 2, 2, 6, 4)))


class Padded(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        with torch.enable_grad():
            x = x.requires_grad_()
            padded = torch.nn.functional.pad(x, (0, (x.shape[1] + 7) // 8 * 8 - x.shape[1]))
            return torch.autograd.grad((padded * padded).sum(), x)[0]


def test_a_forward_that_takes_gradients_may_pad_by_a_size() -> None:
    assert [symbol["name"] for symbol in capture(Padded(), [torch.randn(3, 5)])["symbols"]] == ["x_0", "x_1"]


def test_results_of_a_region_lose_no_dimension() -> None:
    """What a region of autocast gives is taken by its place until the region is gone: other calls have that name then,
    of as many other results.
    """

    def forward(x: Any) -> Any:
        left, right = x.chunk(2, -1)
        with torch.autocast("cpu", enabled=False):
            rows = (left * right).unbind(0)
            least, most = rows[0].amin(-1), rows[1].amax(-1)
        return least + most

    assert captured(Op(forward), [torch.randn(2, 3, 6)]).symbols


def test_a_place_is_a_statement_of_a_file() -> None:
    trace = (
        'File "/home/task.py", line 7, in forward\n  y = f(x)\nFile "<eval_with_key>.1", line 9, in forward\n  z = g(x)'
    )
    node = torch.fx.Graph().placeholder("x")
    node.meta["stack_trace"] = trace
    assert at_node(node) == "task.py line 7: `y = f(x)`"


def test_an_older_torch_without_the_dense_form_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task's process enters the context, whatever torch a user has."""
    from torch.nn.attention import flex_attention as module

    monkeypatch.delattr(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG")
    whole = module.flex_attention_hop
    with attention_dense():
        assert module.flex_attention_hop is whole
    monkeypatch.setitem(sys.modules, "torch._higher_order_ops.flex_attention", None)
    with attention_dense():
        pass
