"""A recurrent layer as one kernel for all time steps (text: text.py; see docs/engine-templates.md)."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import STORAGE
from hipwright.engine.ir.index import ZERO, Ix, ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.offers import KernelCall, Offer, Output
from hipwright.engine.templates.recurrent.spread import (
    KEPT,
    LANES,
    LIBRARY_CYCLES,
    SHARED_ROWS,
    UNITS,
    Spread,
    best_spread,
)
from hipwright.engine.templates.recurrent.spread_text import spread_text
from hipwright.engine.templates.recurrent.text import GATES, LayerSpec, layer_text

REGISTERS = 65536
"""Registers of a compute unit: the least of our targets (NVIDIA)."""
COMPUTE_UNITS = 132
RESIDENT_BYTES = 256 << 10
"""Size of recurrent weights that registers and the nearest cache of one block hold."""
STEP_REGISTERS = {"float32": 20, "float16": 48, "bfloat16": 48}
"""Registers of a step beside sums and weights: with these NVRTC spills nothing of a GRU of 128 units in 128
registers.
"""


@dataclass(eq=False)
class RecurrentLayer:
    """One layer's call. rows: batch rows at capture."""

    kind: str
    number: int
    hidden: int
    directions: int
    batch: Ix
    steps: Ix
    batch_first: bool
    dtype: str
    rows: int

    @property
    def gates(self) -> int:
        """Rows of the weight matrix per hidden unit."""
        return GATES[self.kind]

    @property
    def is_large(self) -> bool:
        """Whether the recurrent weights take more than RESIDENT_BYTES."""
        return self.gates * self.hidden**2 * (4 if self.dtype == "float32" else 2) > RESIDENT_BYTES

    @property
    def spread(self) -> Spread | None:
        """How its weights would be spread over many blocks."""
        vector = 4 if self.dtype == "float32" else 8
        return best_spread(self.kind, self.hidden, self.rows, self.directions, vector)


def persistent(call: KernelCall) -> Offer:
    """The only offer for `hip.recurrent_layer(gates, weights, biases, h0, c0, layer, kind, batch_first)`."""
    gates, weights, biases, h0, c0, number, kind, batch_first = call.args
    shape = gates[0].shape
    steps, batch = (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    layer = RecurrentLayer(
        kind,
        number,
        weights[0].shape[-1].value or 0,
        len(gates),
        batch,
        steps,
        batch_first,
        gates[0].dtype,
        call.c.hint(batch),
    )
    pairs = [t for pair in (gates, weights, biases) for t in (pair[0], pair[-1])]  # the same if there is one direction
    operands = [t and call.c.realise(t, between=False) for t in (*pairs, _state(h0), _state(c0))]
    outputs = [Output(call.shape(k)) for k, meta in enumerate(call.outs) if meta is not None]
    return Offer("persistent", write, operands, outputs, default=True, whole=True, data=layer)


def _state(value: Tensor | None) -> Tensor | None:
    """An initial state, None when it is zeros."""
    if value is None or value.buffer:
        return value
    e = value.at([ZERO] * value.rank)
    return None if e.op == "const" and e.attr == 0 else value


def write(body: CallBody) -> list[EmittedKernel]:
    """The layer's kernel, and before it the one that packs its weights if they are streamed.

    Layers of one kind and size share the text of the kernels, which is therefore device code that is written once.
    """
    layer: RecurrentLayer = body.data
    spread = layer.spread
    fast = spread and spread.cycles <= LIBRARY_CYCLES and (layer.dtype == "float32" or layer.is_large)
    default = "resident" if _weights_fit(layer) else "spread" if fast else "streamed"
    weights = body.choose("weights", ("resident", "streamed", *["spread"] * bool(spread)), default)
    streamed = weights == "streamed"
    knobs = _spread_knobs(body, spread) if weights == "spread" and spread else _ask_knobs(body, layer, streamed)
    numbers = "".join(name.removeprefix(wanted).lower() for wanted, name in knobs.items())
    outputs = body.stored(0) is not None
    way = "" if weights == "resident" else f"_{weights}"
    name = f"{layer.kind}_{layer.hidden}_{layer.dtype}{way}{'' if outputs else '_last'}{numbers}"
    spec = LayerSpec(
        name=name, kind=layer.kind, ctype=STORAGE[layer.dtype], hidden=layer.hidden, streamed=streamed, outputs=outputs
    )
    kernels = _packing_launch(body, layer, spec) if streamed else []
    kernels.append(_layer_launch(body, layer, spec, kernels[0].writes[0] if streamed else ""))
    text = layer_text(spec)
    if weights == "spread":
        _spread_launch(body, layer, kernels[-1])
        text = spread_text(spec)
    for kernel in kernels:
        kernel.grid, kernel.block = _with_knob_names(kernel.grid, knobs), _with_knob_names(kernel.block, knobs)
    kernels[-1].used |= {"load_16_bytes", "lane_reduce_scatter"}
    kernels[-1].device[name] = _with_knob_names(text, knobs)
    return kernels


def _spread_launch(body: CallBody, layer: RecurrentLayer, kernel: EmittedKernel) -> None:
    """Changes the launch of a layer to that of one whose weights are spread: many blocks, and what they exchange."""
    size = ix(2 * layer.directions * layer.hidden) * layer.batch + 1
    exchanged = body.temporary("exchanged", [size], "int64", zero=True)
    groups = f"cdiv({to_python(layer.batch)}, RNN_SHARED_ROWS) * {layer.directions}"
    kernel.grid = f"cdiv({layer.hidden}, RNN_UNITS) * {groups}"
    kernel.block = "cdiv(RNN_UNITS * RNN_LANES, 64) * 64"
    kernel.arguments += [exchanged, str(layer.directions)]
    kernel.reads = [*kernel.reads, exchanged]
    kernel.writes = [*kernel.writes, exchanged]
    kernel.used |= {"take_block_ticket", "publish_at_step", "await_step", "schedule_barrier", "is_vector_aligned"}


def _spread_knobs(body: CallBody, spread: Spread) -> dict[str, str]:
    """The knobs of a layer whose weights are spread: {name in the text: macro}."""
    return {
        "RNN_LANES": body.knob("RNN_LANES", spread.lanes, LANES, "lanes of a hidden unit of a spread layer"),
        "RNN_SHARED_ROWS": body.knob(
            "RNN_SHARED_ROWS", spread.rows, SHARED_ROWS, "batch rows that blocks share in a spread layer"
        ),
        "RNN_KEPT": body.knob("RNN_KEPT", spread.kept, KEPT, "16-byte vectors of a lane's weights kept in registers"),
        "RNN_UNITS": body.knob("RNN_UNITS", spread.units, UNITS, "hidden units of a block of a spread layer"),
    }


def _packing_launch(body: CallBody, layer: RecurrentLayer, spec: LayerSpec) -> list[EmittedKernel]:
    """The launch that packs the weights of both directions."""
    packed = body.temporary("packed", [ix(layer.directions), ix(spec.pitch)], layer.dtype)
    weights = [t.buffer for t in body.operands[2:4] if t is not None]
    grid = f"(cdiv({spec.packed()}, 256), {layer.directions})"
    return [EmittedKernel(f"{spec.name}_pack", None, grid, "256", [*weights, packed], reads=weights, writes=[packed])]


def _layer_launch(body: CallBody, layer: RecurrentLayer, spec: LayerSpec, packed: str) -> EmittedKernel:
    """The launch that computes all steps."""
    buffers = [t.buffer if t is not None else "None" for t in body.operands]
    if packed:
        buffers[2:4] = [packed, packed]
    if spec.kind != "lstm":
        del buffers[7]
    outs = [body.stored(k) or "None" for k in range(len(body.placed.items))]
    sizes = [layer.steps, layer.batch]
    for width in (layer.gates * layer.hidden, layer.directions * layer.hidden):
        step, row = (ix(width), layer.steps * width) if layer.batch_first else (layer.batch * width, ix(width))
        sizes += [step, row]
    arguments = [*buffers, *outs, *(to_python(s) for s in sizes), str(layer.number)]
    grid = f"(cdiv({to_python(layer.batch)}, RNN_ROWS), {layer.directions})"
    reads = [b for b in dict.fromkeys(buffers) if b != "None"]
    used = {"relu"} if spec.kind == "rnn_relu" else {"math.h"}
    return EmittedKernel(
        spec.name, None, grid, spec.threads(), arguments, used, reads=reads, writes=[b for b in outs if b != "None"]
    )


def _with_knob_names(text: str, knobs: dict[str, str]) -> str:
    for wanted, name in knobs.items():
        text = text.replace(wanted, name)
    return text


# ---------------------------------------------------------------- the static rules


def _default_lanes(hidden: int) -> int:
    """Lanes of a hidden unit: about 512 threads a block, and at most 8 lanes to sum over."""
    return 8 if hidden <= 32 else 4 if hidden <= 128 else 2 if hidden <= 256 else 1


def _default_rows(layer: RecurrentLayer) -> int:
    """Batch rows of a block: one as long as every block has a compute unit of its own; the sums must fit in
    registers.
    """
    rows = 1
    most = 4 if _default_threads(layer.hidden) > 512 else 32 if layer.dtype == "float32" else 8
    while rows < 8 and 2 * rows * layer.gates <= most and layer.rows * layer.directions > COMPUTE_UNITS * rows:
        rows *= 2
    return rows


def _default_threads(hidden: int) -> int:
    return min(1024, -(-hidden * _default_lanes(hidden) // 64) * 64)


def _lane_vectors(layer: RecurrentLayer) -> int:
    """16-byte vectors of a weight row that a lane reads."""
    span = _default_lanes(layer.hidden) * (4 if layer.dtype == "float32" else 8)
    return -(-layer.hidden // span)


def _free_registers(layer: RecurrentLayer) -> int:
    """Registers of a thread that weights may take: its share of the compute unit's, less those of a step."""
    share = min(255, REGISTERS // _default_threads(layer.hidden))
    return share - STEP_REGISTERS[layer.dtype] - 2 * layer.gates * _default_rows(layer)


def _weights_fit(layer: RecurrentLayer) -> bool:
    """Whether all recurrent weights fit into a block's registers."""
    turns = -(-layer.hidden * _default_lanes(layer.hidden) // _default_threads(layer.hidden))
    return turns * layer.gates * _lane_vectors(layer) * _vector_registers(layer) <= _free_registers(layer)


def _vector_registers(layer: RecurrentLayer) -> int:
    """Registers of 16 bytes of weights: compilers convert half types once, before the steps."""
    return 4 if layer.dtype == "float32" else 8


def _ask_knobs(body: CallBody, layer: RecurrentLayer, streamed: bool) -> dict[str, str]:
    """The knobs of the kernels: {name in the text: macro}."""
    out = {
        "RNN_SPLIT": body.knob("RNN_SPLIT", _default_lanes(layer.hidden), (1, 2, 4, 8, 16), "lanes of a hidden unit"),
        "RNN_ROWS": body.knob("RNN_ROWS", _default_rows(layer), (1, 2, 4, 8), "batch rows of a block"),
    }
    if streamed:
        free = _free_registers(layer) - 8 * layer.gates  # of the two vectors under way
        keep = max((k for k in (1, 2, 4, 8) if k * layer.gates * _vector_registers(layer) <= free), default=0)
        out["RNN_RESIDENT"] = body.knob(
            "RNN_RESIDENT", keep, (0, 1, 2, 4, 8), "16-byte pieces of a weight row in registers"
        )
    return out
