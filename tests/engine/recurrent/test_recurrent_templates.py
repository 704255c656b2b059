"""Recurrent layers as one kernel for all steps, and single cells: values on the cpu target, resources of real
builds.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hipwright.capture.graph import Graph
from hipwright.capture.recurrent_shapes import steps_unwalked
from hipwright.engine import explain, space, write
from hipwright.engine.templates.recurrent.spread import best_spread
from hipwright.engine.templates.recurrent.text import GATES
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from tests.engine.harness import CACHE, captured, check, kernels_in, run

LSTM, GRU, RNN = torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100")


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(dtype)


class Layer(torch.nn.Module):
    """A recurrent module with or without initial states; last: the final states only."""

    def __init__(self, rnn: torch.nn.Module, *, last: bool = False) -> None:
        super().__init__()
        self.rnn = rnn
        self.last = last

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        out = self.rnn(x, (states if len(states) > 1 else states[0]) if states else None)
        return out[1] if self.last else out


class Cell(torch.nn.Module):
    def __init__(self, cell: torch.nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        return self.cell(x, states if len(states) > 1 else states[0])


def verify(model: torch.nn.Module, inputs: list[torch.Tensor], **more: Any) -> str:
    torch.manual_seed(2)
    return check(model, inputs, library=("aten.linear.default", "aten.addmm.default"), **more)


class OperatorCounter(TorchDispatchMode):
    """Counts operators."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_two_layers_two_directions_batch_first_another_batch_and_length() -> None:
    text = verify(Layer(LSTM(7, 13, 2, batch_first=True, bidirectional=True)), [draw(3, 5, 7)], other=[draw(2, 9, 7)])
    assert text.count("lstm_13_float32[") == 2  # two launches of one kernel
    assert "torch.lstm" not in text


@pytest.mark.parametrize(
    ("model", "states", "choices", "wave"),
    [
        (GRU(7, 20, bias=False), [(1, 3, 20)], {"call:gru_layer_0:weights": "streamed", "RNN_ROWS": 2}, 32),
        (RNN(7, 33, 2, nonlinearity="relu"), [], {"RNN_ROWS": 4, "RNN_SPLIT": 16}, 64),
        (RNN(7, 70), [(1, 3, 70)], {}, 32),
        (
            LSTM(5, 70),
            [(1, 3, 70)] * 2,
            {"call:lstm_layer_0:weights": "streamed", "RNN_RESIDENT": 1, "RNN_SPLIT": 2},
            64,
        ),
    ],
)
def test_options(model: torch.nn.Module, states: list[Any], choices: dict[str, Any], wave: int) -> None:
    width: Any = model.input_size
    verify(Layer(model), [draw(4, 3, width), *(draw(*s) for s in states)], choices=choices, wave=wave)


@pytest.mark.parametrize(
    ("model", "rows", "states", "knobs"),
    [
        (LSTM(7, 20, bidirectional=True), 5, 0, {"RNN_LANES": 8, "RNN_UNITS": 4, "RNN_SHARED_ROWS": 4}),
        (LSTM(5, 24, 2), 5, 2, {"RNN_LANES": 4, "RNN_UNITS": 8, "RNN_SHARED_ROWS": 8}),
        (GRU(5, 45), 9, 1, {}),
        (RNN(5, 70, nonlinearity="relu", bias=False), 3, 0, {"RNN_LANES": 32, "RNN_UNITS": 16, "RNN_SHARED_ROWS": 16}),
        (GRU(5, 33).half(), 4, 1, {"RNN_UNITS": 4}),
        (LSTM(5, 64), 3, 0, {"RNN_LANES": 4, "RNN_KEPT": 1, "RNN_UNITS": 16}),
        (GRU(5, 45), 3, 1, {"RNN_LANES": 4, "RNN_KEPT": 0, "RNN_UNITS": 16}),
        (GRU(5, 64).bfloat16(), 3, 1, {"RNN_LANES": 4, "RNN_KEPT": 1, "RNN_UNITS": 16}),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_spread_weights(model: torch.nn.Module, rows: int, states: int, knobs: dict[str, int], last: bool) -> None:
    """Blocks with some hidden units each exchange the states of every step, also where rows and units fill no block."""
    width: Any = model.input_size
    hidden: Any = model.hidden_size
    dtype, kind = next(model.parameters()).dtype, type(model).__name__.lower().replace("rnn", "rnn_relu")
    layers: Any = model.num_layers
    given = [draw(layers, rows, hidden, dtype=dtype)] * states
    choices = {f"call:{kind}_layer_{k}:weights": "spread" for k in range(layers)}
    text = verify(Layer(model, last=last), [draw(4, rows, width, dtype=dtype), *given], choices={**choices, **knobs})
    assert "_spread" in text and "publish_at_step(" in text


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_a_spread_fits_every_target(kind: str) -> None:
    """All blocks of a group are on the device at once, the smallest and the processor too, and leave some registers."""
    for hidden, rows, directions in itertools.product(range(8, 1100, 36), (1, 7, 64, 500), (1, 2)):
        spread = best_spread(kind, hidden, rows, directions, 4)
        if spread is None:
            assert hidden > 500
            continue
        assert spread.kept * spread.lanes * 4 >= hidden or hidden % (spread.lanes * 4) == 0
        blocks, threads = -(-hidden // spread.units), -(-spread.units * spread.lanes // 64) * 64
        assert blocks <= 64 and blocks * (threads + 64) <= 24576
        kept = GATES[kind] * min(hidden / spread.lanes, 4 * spread.kept)
        assert kept + GATES[kind] * spread.rows < 65536 / max(threads, 257)


@pytest.mark.parametrize("hidden", [1, 3, 5, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_streamed_weights_of_both_directions_are_aligned(hidden: int, dtype: torch.dtype) -> None:
    """An odd number of hidden units and gates: the second direction's weights begin on a vector's boundary."""
    model = Layer(GRU(3, hidden, bidirectional=True).to(dtype))
    verify(model, [draw(2, 3, 3, dtype=dtype)], choices={"call:gru_layer_0:weights": "streamed"})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_keep_their_state_in_float(dtype: torch.dtype) -> None:
    verify(Layer(GRU(5, 40, 2, bidirectional=True).to(dtype)), [draw(4, 3, 5, dtype=dtype)], choices={"RNN_ROWS": 8})


@pytest.mark.parametrize("model", [LSTM(5, 8, 2), LSTM(5, 8, bidirectional=True, batch_first=True)])
def test_library_layers_accept_any_number_of_steps(model: torch.nn.Module) -> None:
    text = check(
        Layer(model),
        [draw(4, 3, 5)],
        choices={"library": True},
        library=("aten.lstm.input", "aten.zeros.default"),
        other=[draw(2, 7, 5)],
    )
    assert "torch.lstm(" in text or "aten.lstm" in text
    assert "x.shape[2] == 5" in text and text.count("==") == 1


@pytest.mark.parametrize("model", [LSTM(5, 8, proj_size=3), GRU(5, 8, 2, bidirectional=True, batch_first=True)])
def test_shapes_without_running_the_steps_match_torch(model: torch.nn.Module) -> None:
    model, x = model.to("meta"), torch.empty(4, 3, 5, device="meta")
    before = [(t.shape, t.stride()) for t in tree_leaves(model(x))]
    with steps_unwalked():
        within = [(t.shape, t.stride()) for t in tree_leaves(model(x))]
    with OperatorCounter() as watch:
        model(x)
    assert within == before and watch.calls > 10, "torch walks again through the steps"


def test_unused_outputs_are_not_stored() -> None:
    text = verify(Layer(GRU(6, 17), last=True), [draw(4, 3, 6)])
    assert "gru_17_float32_last[" in text


@pytest.mark.parametrize(
    ("cell", "count"),
    [(torch.nn.LSTMCell(5, 12), 3), (torch.nn.GRUCell(5, 12, bias=False), 2), (torch.nn.RNNCell(5, 12), 2)],
)
def test_a_cell_is_two_products_and_one_kernel(cell: torch.nn.Module, count: int) -> None:
    shapes = [(4, 5), *[(4, 12)] * (count - 1)]
    name = {3: "lstm_cell", 2: "gru_cell" if isinstance(cell, torch.nn.GRUCell) else "rnn_tanh_cell"}[count]
    text = verify(
        Cell(cell),
        [draw(*s) for s in shapes],
        other=[draw(3, *s[1:]) for s in shapes],
        choices={f"call:{name}_linear_{k}": "library" for k in (0, 1)},
    )
    assert (text.count("F.linear("), kernels_in(text)) == (2, 1)


def layer_graph(model: torch.nn.Module, batch: int) -> tuple[str, Graph]:
    dtype = next(model.parameters()).dtype
    graph = captured(Layer(model), [draw(2, batch, 4, dtype=dtype)])
    (key,) = (k for k in space(graph) if k.count(":") == 1 and k.startswith("call:") and "gates" not in k)
    return key, graph


def test_large_layers_are_left_to_the_library_by_default() -> None:
    for model, batch in ((LSTM(4, 1024), 64), (LSTM(4, 256), 600), (LSTM(4, 64).half(), 600)):
        key, graph = layer_graph(model, batch)
        assert space(graph)[key].default == "library"
        assert "torch.lstm(" in write(graph).text
        assert "lstm" in explain(graph)["library"]
        assert "torch.lstm(" not in write(graph, {key: "persistent"}).text


def test_unsupported_layers_are_left_to_the_library() -> None:
    for model in (LSTM(4, 8, proj_size=3), LSTM(4, 8).double()):
        graph = captured(Layer(model), [draw(2, 3, 4, dtype=next(model.parameters()).dtype)])
        assert "torch.lstm(" in write(graph).text


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (LSTM(4, 64), 16),
        (LSTM(4, 128), 32),
        (LSTM(4, 100).bfloat16(), 1024),
        (GRU(4, 96), 300),
        (RNN(4, 256), 1024),
        (GRU(4, 128).half(), 16),
        (LSTM(4, 512), 8),
        (LSTM(4, 640), 16),
        (LSTM(4, 1024), 4),
        (GRU(4, 1024), 16),
        (GRU(4, 768), 10),
        (GRU(4, 512), 10),
        (RNN(4, 512), 16),
        (LSTM(4, 256), 64),
    ],
)
def test_no_scratch_at_default_knobs(model: torch.nn.Module, batch: int) -> None:
    key, graph = layer_graph(model, batch)
    program = write(graph, {key: "persistent"})
    parsed = parse(program.text)
    for target in TARGETS:
        build = amdgpu.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
        assert build.ok, build.log
        assert [k.name for k in build.kernels if k.scratch_bytes] == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_gates_keep_their_type_where_others_are_wide(kind: Any, dtype: torch.dtype) -> None:
    """`wide` keeps half types in float32 between kernels that read elements; this one reads memory as it lies."""
    model, x = Layer(kind(24, 32).to(dtype), last=True), draw(9, 3, 24, dtype=dtype)
    program = write(captured(model, [x]), {"wide": True})
    torch.manual_seed(2)
    got, _ = run(program, model, [x])
    for mine, want in zip(tree_leaves(got), tree_leaves(model(x)), strict=True):
        torch.testing.assert_close(mine, want, atol=0.02, rtol=0.02)
