"""The task host: the one process that runs a task file's own code.

It also computes expectations, so no candidate shares its zygote.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from hipwright.errors import TaskError
from hipwright.higher_order import attention_dense, in_this_process, loops_written_out
from hipwright.program.lower.live_bytes import LiveBytes
from hipwright.program.lower.trace import OpTrace
from hipwright.records import Workload
from hipwright.sandbox import crash_page, lockdown
from hipwright.task import sizes
from hipwright.task.host import leaves
from hipwright.task.host import state as states
from hipwright.task.host.leaves import elements_of, finite_share, may_index, plain, reshaped, shapes_of, spec_of
from hipwright.task.host.load import SUPPORTED, TaskModule
from hipwright.task.host.meta_model import HOW, MetaModel, without_data
from hipwright.task.host.modes.value_checks import values_checked
from hipwright.task.host.prepared import KeptStates
from hipwright.task.host.reference import ReferenceModel, named_leaves
from hipwright.task.host.shape_probe import ShapeProbe
from hipwright.task.host.whole_draws import WholeDraws
from hipwright.task.host.writes import and_written, with_written
from hipwright.task.placed import whole
from hipwright.tensors import Tree
from hipwright.torchio import map_torch, tree_from_torch

# limits of runs on values where a run on shapes alone would suffice or was impossible
_REAL_ELEMENTS = 1 << 24  # of inputs and parameters
_REAL_OPERATIONS = 1 << 33  # of products and convolutions: a fraction of a second
_INDEX_DRAWS, _SMALL = 6, 1 << 16  # and elements of a workload that replaces one too large to run


class TaskHost:
    """Service of the sandbox. init: {"name": the file's name, "source": its text}.

    Methods take and return (header, bundle) as the sandbox has it; `TaskHandle` documents them.
    """

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        lockdown("task")
        in_this_process(attention_dense(), loops_written_out())
        _phase("running the file")
        self.file = TaskModule(init["name"], init["source"])
        _phase("Model(...)")
        self.reference = ReferenceModel(self.file)
        self._states = KeptStates()
        held = [(tensor.numel(), tensor.nbytes) for _, tensor in states.parameters(self.reference.model())]
        self._parameters, self._parameter_bytes = (sum(sizes) for sizes in zip((0, 0), *held, strict=True))
        self.meta_model = MetaModel(init["name"], init["source"])
        self._draws = WholeDraws()
        self._first: list[Any] | None = None  # the first workload's inputs without data
        self._space: sizes.ShapeSpace | None = None
        self._drew = False  # whether a run drew random numbers
        self._wrote: set[str] = set()
        self._finite = 1.0  # half the share of finite numbers that the file's own inputs give
        gc.freeze()  # what the file imports stays, and is not looked through after every few copies of its model

    # ---------------------------------------------------------------- workloads

    def describe(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The file's own workloads, each run once; on shapes alone where a run is costly.

        {"workloads": [records], "operations": {name: of its products or None}, "outputs": {name: elements; 0
        where they are complex or drawn}, "parameter_bytes", "written": paths of inputs that forward writes}.
        """
        own = [Workload(name="given")] if self.file.given else []
        own += [Workload(name=f"group{i}", origin="group", index=i) for i in range(self.file.groups)]
        if not own:
            raise TaskError(f"{self.file.name}: get_input_groups() is empty")
        described, operations, outputs = [], {}, {}
        for workload in own:
            inputs = self._sketch(workload)
            if workload.name == own[0].name:
                self._first = map_torch(inputs, without_data)
            specs = tuple(spec_of(tensor) for _, tensor in named_leaves("inputs", inputs))
            operations[workload.name], made = self._check(inputs)
            apart = self._drew or any(leaf.is_complex() for leaf in made)
            outputs[workload.name] = 0 if apart else sum(leaf.numel() for leaf in made)
            described.append(Workload(name=workload.name, origin=workload.origin, index=workload.index, specs=specs))
        told = {"operations": operations, "outputs": outputs, "written": sorted(self._wrote | self.meta_model.wrote)}
        return {**told, "parameter_bytes": self._parameter_bytes, "workloads": [w.to_dict() for w in described]}, None

    def derived(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """Other shapes of the first workload that the reference accepts; {"workloads": [...]}."""
        _phase("deriving other shapes")
        with contextlib.suppress(TaskError):
            found = [w for shapes in self._shape_space().derived() if (w := self._workload(shapes)) is not None]
            return {"workloads": [workload.to_dict() for workload in found]}, None
        return {"workloads": []}, None

    def smaller(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """{"workload": one with about header["limit"] elements of inputs and outputs, or None}."""
        _phase("deriving other shapes")
        space, limit = self._shape_space(), header["limit"]
        shapes = space.shrink(limit, least=2) or space.smallest(limit)
        workload = None if shapes is None else self._workload(shapes)
        return {"workload": None if workload is None else workload.to_dict()}, None

    def held(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """{"workloads": other shapes that keep some size as it is given; None after the last header["part"]}."""
        _phase("deriving other shapes")
        parts = self._shape_space().held()
        if header["part"] >= len(parts):
            return {"workloads": None}, None
        found = map(self._workload, parts[header["part"]].derived())
        return {"workloads": [workload.to_dict() for workload in found if workload is not None]}, None

    def space(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """{"given": the first workload's shapes, "symbols": [[size, places], ...] of equal sizes that may change."""
        _phase("deriving other shapes")
        space = self._shape_space()
        return {"given": space.given, "symbols": [[s.size, s.places] for s in space.split() if not s.factors]}, None

    def accepted(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """{"workload": that of header["shapes"], "elements": of inputs and outputs}.

        None where the elements exceed header["limit"]; 0 elements where the reference refuses the shapes.
        """
        _phase("deriving other shapes")
        shapes = tuple(map(tuple, header["shapes"]))
        elements = self._shape_space().cost(shapes) or 0
        workload = self._workload(shapes) if 0 < elements <= header["limit"] else None
        if workload is None:
            return {"workload": None, "elements": elements if elements > header["limit"] else 0}, None
        return {"workload": workload.to_dict(), "elements": elements}, None

    def _workload(self, shapes: sizes.Shapes) -> Workload | None:
        """The workload of these shapes if the reference runs on it, with about as many finite numbers as on its own."""
        workload = Workload(name=sizes.shape_name(shapes), origin="derived", shapes=shapes)
        try:
            inputs = self.draw(workload, 0)
            outputs = self.forward(inputs)
            if any(may_index(tensor) for _, tensor in named_leaves("inputs", inputs)):
                for seed in range(1, _INDEX_DRAWS):  # a few indices may be in range under one seed alone
                    self.forward(self.draw(workload, seed))
        except TaskError:
            return None
        if finite_share(outputs) < min(0.5, self._finite):
            return None
        specs = tuple(spec_of(tensor) for _, tensor in named_leaves("inputs", inputs))
        return Workload(name=workload.name, origin="derived", shapes=shapes, specs=specs)

    def _sketch(self, workload: Workload) -> list[Any]:
        """A workload's arguments, without data where they are large or reading values would be too costly."""
        _phase("get_inputs()")
        with contextlib.suppress(TaskError):  # a file that depends on the values it drew
            sketch = self._shapes_of(workload)
            if elements_of(sketch) >= _REAL_ELEMENTS:
                return sketch
        return self.draw(workload, 0)

    def _shapes_of(self, workload: Workload) -> list[Any]:
        """The arguments without data. Raises TaskError where the file needs data to create them."""
        if workload.shapes is None:
            return self.meta_model.inputs(0, self._group(workload))
        leaves = iter(workload.shapes)
        return map_torch(self._given(), lambda t: reshaped(t, next(leaves)))  # type: ignore[no-any-return]

    def _group(self, workload: Workload) -> int | None:
        return workload.index if workload.origin == "group" or not self.file.given else None

    def draw(self, workload: Workload, seed: int) -> list[Any]:
        """The arguments of a workload under a seed, as torch tensors."""
        _phase("get_inputs()")
        group = self._group(workload)
        if workload.shapes is None:
            return self.file.inputs(seed, group)
        drawn = partial(self.file.inputs, group=group)
        return self._draws.resized(self._given(), workload.shapes, seed, group, drawn)

    def _given(self) -> list[Any]:
        """The first workload's inputs without data."""
        if self._first is None:
            self._first = map_torch(self._sketch(Workload(name="given")), without_data)
        assert self._first is not None
        return self._first

    def _shape_space(self) -> sizes.ShapeSpace:
        """The space of free sizes: those accepted without data and, of these, a part that values accept.

        Class indices bound the number of classes, which shapes alone do not show; then only the batch varies.
        """
        if self._space is None:
            given = self._given()
            affordable = self.affordable(given, None)
            probe = ShapeProbe(self.meta_model, given, self.draw, self.forward, affordable=affordable)
            whole = sizes.ShapeSpace(shapes_of(given), probe)
            self._space = next((space for space in whole.parts(ties=True) if self._holds(space)), whole)
        return self._space

    def _holds(self, space: sizes.ShapeSpace) -> bool:
        shapes = space.smallest(_SMALL)
        return shapes is not None and self._workload(shapes) is not None

    def _check(self, inputs: list[Any]) -> tuple[float | None, list[torch.Tensor]]:
        """Runs forward once and checks its outputs; returns its operations, None where unknown, and the outputs."""
        self._require_supported(inputs, "an input")
        _phase("forward")
        operations, outputs = None, None
        with contextlib.suppress(TaskError):
            operations, outputs = self.meta_model.operations(inputs)
        if self.affordable([inputs, outputs], operations):
            outputs = self.forward(inputs)
            self._finite = min(self._finite, finite_share(outputs) / 2)
        elif outputs is None:
            outputs = self._costly_outputs(inputs)
        self._require_supported(plain(outputs), "an output")
        if not any(True for _ in named_leaves("output", outputs)) and not isinstance(outputs, (bool, int, float)):
            why = f"{self.file.name}: forward returns nothing that can be compared"
            raise TaskError(why, hint=f"return {SUPPORTED}; or write to an input")
        return operations, [leaf for _, leaf in named_leaves("output", outputs)]

    def _require_supported(self, values: Any, what: str) -> None:
        try:
            tree_from_torch(map_torch(values, lambda t: torch.empty(0, dtype=t.dtype)))
        except TypeError as error:
            why = f"{self.file.name}: {what} is not supported: {error}"
            raise TaskError(why, hint=f"supported: {SUPPORTED}") from None

    def affordable(self, inputs: list[Any], operations: float | None) -> bool:
        """Whether forward may run on values at these shapes."""
        return elements_of(inputs) + self._parameters < _REAL_ELEMENTS and (operations or 0.0) < _REAL_OPERATIONS

    def _costly_outputs(self, inputs: list[Any]) -> Any:
        """Outputs of a forward that needs more than the meta device and is too costly to run as given."""
        try:
            return self.meta_model.outputs(inputs, "fake")
        except TaskError as error:
            why = error.message.partition(" raises ")[2]
        smaller = self._stand_in()
        if smaller is not None:
            return self.forward(self.draw(smaller, 0))
        said = f"{self.file.name}: too large to run here, and on shapes alone forward raises {why[:300]}"
        raise TaskError(said, hint="give get_input_groups() with small inputs, and no get_inputs()")

    def _stand_in(self) -> Workload | None:
        """A small workload of the same kind as the first."""
        shapes = self._shape_space().smallest(_SMALL)
        return None if shapes is None else self._workload(shapes)

    def forward(self, inputs: list[Any]) -> Any:
        """The outputs of a new model on these inputs, as `with_written` returns them. Raises TaskError."""
        _phase("forward")
        model, before = self.reference.model(), torch.get_rng_state()
        with torch.no_grad(), values_checked(self.file.source):
            outputs = self.file.guarded(lambda: with_written(model, inputs, self._wrote), "forward")
        self._drew |= not torch.equal(before, torch.get_rng_state())
        return outputs

    # ---------------------------------------------------------------- data

    def inputs(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The arguments of a workload under a seed."""
        drawn = self.draw(Workload.from_dict(header["workload"]), header["seed"])
        return {}, tree_from_torch(drawn)

    def init_state(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The state table of a model constructed under a seed."""
        _phase("Model(...)")
        return {}, states.build(self.file.model(header["seed"]))

    def init_inputs(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """{"arguments"}: the arguments that Model is constructed with, plain values only."""
        arguments = self.file.init_inputs(header["seed"])
        try:
            return {"arguments": json.loads(json.dumps(arguments))}, None
        except (TypeError, ValueError):
            raise TaskError(
                f"{self.file.name}: get_init_inputs() gives more than numbers, strings and lists of them, which a "
                "ModelNew file cannot be given"
            ) from None

    def run(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The reference on bundle = [inputs, state], header as in `ReferenceModel.run`: [outputs, buffers, info].

        A state that was sent before may be None; {"unknown_state": True} where it is not kept any more.
        """
        _phase("forward")
        inputs, state = bundle[0], self._states.known(header["token"], bundle[1])
        if state is None:
            return {"unknown_state": True}, None
        return {}, list(self.reference.run(inputs, state, **header))

    def capture(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The engine's graph of the model on a workload; header["long"]: from which length on a graph is long."""
        from hipwright.capture.forward import capture  # imports torch.export, which takes a second

        _phase("capturing the graph")
        torch._dynamo.reset()  # under modes it took note to leave alone torch's own code that capture has it trace
        inputs = map_torch(self._sketch(Workload.from_dict(header["workload"])), leaves.allocated)
        groups = (Workload(name=f"group{n}", origin="group", index=n) for n in range(self.file.groups))
        how: Any = {"long": header.get("long"), "varying": leaves.differing(inputs, map(self._sketch, groups))}
        return {}, self.file.guarded(lambda: capture(self.reference.model(), inputs, **how), "capturing the graph")

    def outline(self, header: dict[str, Any], bundle: Tree) -> tuple[dict[str, Any], Tree]:
        """The reference's operators and specs at a workload's shapes: {"workload", "how", "ops", "live": bytes,
        "outputs": [spec, ...]}, and [inputs, state table] with specs for tensors.

        "workload" is another, smaller one where forward needs values.
        """
        _phase("tracing forward")
        workload = Workload.from_dict(header["workload"])
        problem: TaskError | None = None
        for how, at, attempt in self._traces(workload):
            try:
                inputs = attempt[0]()
                ops, (outputs, written), live = attempt[1](inputs)
            except TaskError as error:
                problem = error
                continue
            reply = {"workload": at.to_dict(), "how": how, "ops": ops, "live": live}
            specs = [spec_of(leaf) for _, leaf in named_leaves("output", outputs)]
            specs += [spec for spec in map(spec_of, written) if whole(spec, ops)]
            reply["outputs"] = [spec.to_dict() for spec in specs]
            return reply, [map_torch(inputs, spec_of), states.build(self.reference.model(), leaf=spec_of)]
        raise problem or TaskError(f"{self.file.name}: too large to run here", hint="give smaller inputs")

    def _traces(self, workload: Workload) -> Iterator[tuple[str, Workload, Any]]:
        """Ways to trace the operators, best first: (how, at which workload, (arguments, run))."""
        sketch = map_torch(self._sketch(workload), without_data)
        for how in HOW:
            yield how, workload, (lambda: sketch, partial(self.meta_model.operators, how=how))
        if self.affordable(sketch, None):
            yield "run", workload, (lambda: self.draw(workload, 0), self._watched)
        elif (smaller := self._stand_in()) is not None:
            yield "run", smaller, (lambda: self.draw(smaller, 0), self._watched)

    def _watched(self, inputs: list[Any]) -> tuple[list[dict[str, Any]], Any, int]:
        model = self.reference.model()
        with torch.no_grad(), LiveBytes() as living, OpTrace() as trace:
            outputs = self.file.guarded(lambda: and_written(model, inputs, self._wrote), "forward")
        return trace.ops, outputs, living.most


def _phase(name: str) -> None:
    """Records the current phase for the parent, in case this process dies or hangs."""
    note = json.dumps({"phase": name}).encode() + b"\0"
    crash_page()[: len(note)] = note
