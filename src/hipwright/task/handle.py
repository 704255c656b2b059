"""The parent's side of a task: a handle that sends requests to the task host. Does not import torch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from hipwright.errors import BadInput, TaskError
from hipwright.held import HeldFrom, ReferenceElsewhere, held
from hipwright.records import Task, TensorSpec, TolerancePolicy, Workload
from hipwright.sandbox import Limits, Zygote
from hipwright.task.kinds import check_kind, with_sibling
from hipwright.task.reference_host import ReferenceHost
from hipwright.task.sizes import Shapes, SharedSize
from hipwright.tensors import HostTensor, Tree, leaves


@dataclass(frozen=True)
class Outline:
    """The reference's operators and specs, traced without data.

    workload: whose shapes were traced; another than the requested one where forward depends on values and is too large
    to run. how: "meta" or "fake" (shapes alone), "run" (on values). ops: as hipwright.program.lower.trace.OpTrace
    records them. inputs, state: the arguments and the state table with TensorSpecs for tensors. outputs: a spec for
    each leaf. live: the most bytes that results of operators hold at once.
    """

    workload: Workload
    how: str
    ops: list[dict[str, Any]]
    inputs: Tree
    state: Tree
    outputs: tuple[TensorSpec, ...]
    live: int = 0

    def specs(self) -> list[TensorSpec]:
        """Inputs, parameters, buffers and outputs."""
        found = leaves((self.inputs, self.state["params"], self.state["buffers"]))
        return [*(leaf for leaf in found if isinstance(leaf, TensorSpec)), *self.outputs]


_LIMITS = Limits(wall_s=120.0, memory_mb=16384)


def open_task(
    path: Path,
    zygote: Zygote,
    *,
    limits: Limits = _LIMITS,
    tolerance: TolerancePolicy = TolerancePolicy(),  # noqa: B008
) -> TaskHandle:
    """Loads a task file in `zygote` (one that runs no candidates) and finds its workloads.

    limits.wall_s bounds each call to the host. Raises BadInput for a missing or unreadable file and for one that is no
    task (`kinds`), and TaskError, naming the file's line, where its code fails.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read the task {path}: {error.strerror}", hint="give the path of a task file") from None
    try:
        source = raw.decode()
    except UnicodeDecodeError as error:
        raise TaskError(f"{path.name}: not UTF-8 text (byte {error.start})") from None
    check_kind(path.name, source)
    try:
        return TaskHandle(path.name, source, zygote, limits, tolerance)
    except TaskError as error:
        told = with_sibling(error, path)
        if told is error:
            raise
        raise told from error


def open_source(name: str, source: str, zygote: Zygote) -> TaskHandle:
    """As `open_task`, for a task without a file. name: without a suffix."""
    return TaskHandle(f"{name}.py", source, zygote, _LIMITS, TolerancePolicy())


class TaskHandle:
    """A loaded task. A context manager; usable from several threads, one call at a time; nothing is cached.

    Its code runs in a process of its own (`reference_host`), long runs of the reference in two.
    """

    def __init__(self, name: str, source: str, zygote: Zygote, limits: Limits, tolerance: TolerancePolicy) -> None:
        self._host, self._second = (ReferenceHost(name, source, zygote, limits) for _ in range(2))
        self.slow = False
        """Whether every run of the reference takes seconds for its parameters alone."""
        self.most_outputs = inf  # elements of outputs above which a workload of its own is judged on a device alone
        self._elsewhere: ReferenceElsewhere | None = None
        self._runs_elsewhere = False  # whether a run there has succeeded
        try:
            reply = self._host.ask("describe")[0]
            found = reply["workloads"]
            self._operations: dict[str, float | None] = reply["operations"]
            self._outputs: dict[str, int] = reply["outputs"]
            self.parameter_bytes = int(reply["parameter_bytes"])
            self.written = tuple(map(str, reply["written"]))  # inputs that forward writes to, by path
            with contextlib.suppress(TaskError):  # too slow for trying other shapes
                found = found + self._host.ask("derived")[0]["workloads"]
        except BaseException:
            self.close()
            raise
        workloads = tuple(Workload.from_dict(plain) for plain in found)
        self.task = Task(name=Path(name).stem, source=source, workloads=workloads, tolerance=tolerance)
        self._workloads = {workload.name: workload for workload in workloads}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the hosts."""
        self._host.close()
        self._second.close()

    # ---------------------------------------------------------------- what there is to run on

    def workload(self, name: str) -> Workload:
        """The task's own or derived workload of that name. Raises KeyError if there is none."""
        return self._workloads[name]

    def inputs(self, workload: str, seed: int) -> Tree:
        """The list of forward's arguments; at derived shapes by the rules of task/host/draw.py.

        Raises KeyError for an unknown workload.
        """
        return self._host.ask("inputs", {"workload": self._workloads[workload].to_dict(), "seed": seed})[1]

    def init_state(self, seed: int) -> Tree:
        """The state table (hipwright.task.host.state) of a Model constructed under `seed`.

        Its parameters may be held elsewhere (`delegate`).
        """
        if self._elsewhere is not None:
            try:
                if (state := self._elsewhere.init_state(seed)) is not None:
                    return state
            except TaskError:
                if self._runs_elsewhere:
                    raise
            self._elsewhere = None
        return self._host.ask("init_state", {"seed": seed})[1]

    def delegate(self, elsewhere: ReferenceElsewhere, from_: HeldFrom) -> None:
        """Makes states elsewhere from now on, and runs the reference on them, where parameters are large or runs long.

        Not for a task that draws random numbers, as another device draws others, nor for one that does not run there.
        """
        longest = max((many or 0.0 for many in self._operations.values()), default=0.0)
        self.slow = self.parameter_bytes >= from_.slow
        self.most_outputs = from_.outputs
        if self.parameter_bytes >= from_.bytes or longest >= from_.operations:
            self._elsewhere = elsewhere

    @property
    def delegated(self) -> bool:
        """Whether states are made, and the reference runs, elsewhere."""
        return self._elsewhere is not None

    def init_inputs(self, seed: int) -> list[Any]:
        """The arguments that Model is constructed with. Raises TaskError where they are more than plain values."""
        found: list[Any] = self._host.ask("init_inputs", {"seed": seed})[0]["arguments"]
        return found

    def derive(self, limit_elements: int) -> Workload | None:
        """A workload whose inputs and outputs have about that many elements together (`ShapeSpace.smallest`), or None.

        Ranks and stride patterns are kept; sizes are odd where the reference allows. `inputs` accepts its name from
        then on.
        """
        plain = self._host.ask("smaller", {"limit": limit_elements})[0]["workload"]
        if plain is None:
            return None
        workload = Workload.from_dict(plain)
        self._workloads.setdefault(workload.name, workload)
        return workload

    def held(self, part: int) -> list[Workload] | None:
        """Derived workloads that keep some size as it is given; `part` counts the sizes from 0. None after the last.

        First one size is kept, the largest first; then all but one.
        """
        with contextlib.suppress(TaskError):  # too slow for trying other shapes
            found = self._host.ask("held", {"part": part})[0]["workloads"]
            if found is not None:
                workloads = [Workload.from_dict(plain) for plain in found]
                return [self._workloads.setdefault(one.name, one) for one in workloads]
        return None

    def free_sizes(self) -> tuple[Shapes, list[SharedSize]]:
        """The first workload's shapes, and the sizes in them that the reference lets change; none where it is slow."""
        with contextlib.suppress(TaskError):
            found = self._host.ask("space")[0]
            symbols = [SharedSize(size, tuple(map(tuple, places))) for size, places in found["symbols"]]
            return tuple(map(tuple, found["given"])), symbols
        return (), []

    def at(self, shapes: Shapes, limit: int) -> tuple[Workload | None, int]:
        """(the derived workload of these shapes, elements of its inputs and outputs).

        No workload where those are more than `limit`; 0 elements where the reference refuses the shapes.
        """
        with contextlib.suppress(TaskError):
            reply = self._host.ask("accepted", {"shapes": shapes, "limit": limit})[0]
            if reply["workload"] is None:
                return None, reply["elements"]
            workload = Workload.from_dict(reply["workload"])
            return self._workloads.setdefault(workload.name, workload), reply["elements"]
        return None, 0

    # ---------------------------------------------------------------- what the reference does

    def reference(
        self,
        inputs: Tree,
        state: Tree,
        *,
        dtype: Literal["float64", "native"] = "float64",
        close: str = "",
        draw: int | None = None,
        rounding: tuple[int, float] | None = None,
        apart: bool = False,
    ) -> tuple[Tree, dict[str, HostTensor], Mapping[str, Any]]:
        """(outputs, buffers and by path written inputs afterwards, info) of the reference on `inputs` and `state`.

        "float64": parameters, buffers, float inputs and every dtype that the code names are float64; integers stay.
        "native": as the file has it. draw: the seed of the generators just before the call; None for one of ours. In
        float64 too, random operators draw in the dtypes that the module itself gives them. close: the narrowest float
        dtype of the task; indices in float64 outputs that were chosen among elements equal up to its rounding are then
        out of range (modes/ties.py). rounding: (seed, how many roundings) by which the results of sums are moved in
        float64 (modes/rounded_sums.py); needs `close`. apart: in a second host, beside another call; not where it draws
        numbers or writes to inputs, which its own dtypes' run in the same host shows.

        info: seconds; random (it draws from torch's generator, or another seed gives other outputs); host_random (other
        outputs by Python's or NumPy's generator); seeds_itself (torch's generator is the same afterwards under every
        seed); generator (digest of torch's generator afterwards, "" where the outputs are the same under another seed);
        aliases: [output leaf, "inputs[0]" | "params.weight" | "buffers.x" | earlier output] that share memory;
        mutated_inputs: paths of inputs that it writes to; decomposes: a matrix (of a native run);
        reference_dtype: "native" where float64 does not run. Raises TaskError where forward raises or takes too long.
        """
        header: dict[str, Any] = {"dtype": dtype, "close": close, **({} if draw is None else {"seed": draw})}
        header |= {} if rounding is None else {"rounding": rounding}
        outputs, buffers, info = self._ask_run(header, inputs, state, apart=apart)
        return outputs, buffers, info

    def special(self, inputs: Tree, state: Tree) -> dict[str, Any]:
        """What the reference's own calls on these inputs say about values (`verify.inputs.Special.of`)."""
        told = self._ask_run({"dtype": "native", "close": "", "special": True}, inputs, state)[2]
        return dict(told["special"])

    def _ask_run(self, header: dict[str, Any], inputs: Tree, state: Tree, *, apart: bool = False) -> Any:
        """The reply to "run", of the process that holds the state."""
        if self._elsewhere is not None and held(state) is not None:
            try:
                told = self._elsewhere.run(header, inputs, state)
            except TaskError:
                if self._runs_elsewhere and not header.get("special"):
                    raise
            else:
                self._runs_elsewhere = self._runs_elsewhere or not header.get("special")
                if not told[2].get("random"):
                    return told
                self._elsewhere = None
            if not self._runs_elsewhere:
                self._elsewhere = None
        return (self._second if apart else self._host).run(header, inputs, state)

    def capture(self, workload: str = "given", *, long: int | None = None) -> dict[str, Any]:
        """The engine's graph (hipwright.capture.forward) on a workload, with the writes into inputs that the reference
        was seen to do (`written`). Raises TaskError if it cannot be captured.

        long: calls from which on a graph is captured as long ones are (capture/long_graphs.py).
        """
        asked = {"workload": self._workloads[workload].to_dict(), "long": long}
        graph: dict[str, Any] = self._host.ask("capture", asked)[1]
        return writes_seen(graph, self.written)

    def outline(self, workload: str = "given") -> Outline:
        """The reference's operators and specs at a workload's shapes, without data, in milliseconds.

        Raises TaskError where it neither runs on shapes alone nor has shapes small enough to run on values.
        """
        reply, (inputs, state) = self._host.ask("outline", {"workload": self._workloads[workload].to_dict()})
        outputs = tuple(map(TensorSpec.from_dict, reply["outputs"]))
        at = Workload.from_dict(reply["workload"])
        return Outline(at, reply["how"], reply["ops"], inputs, state, outputs, reply["live"])

    def operations(self, workload: str) -> float:
        """Arithmetic operations of the products and convolutions in one forward; 0 where unknown."""
        return self._operations.get(workload) or 0.0

    def output_elements(self, workload: str) -> int:
        """Elements of all outputs of one forward; 0 for a derived workload."""
        return self._outputs.get(workload, 0)


def writes_seen(graph: dict[str, Any], written: Sequence[str]) -> dict[str, Any]:
    """A graph's plain form without writes into inputs that the reference was not seen to write to: a schema says what
    an operator may write, as the statistics of a batch norm that does not train, and writing back what was there is a
    write too.

    written: the inputs' paths, as `TaskHandle.written`.
    """
    places = {name: f"inputs[{number}]" for number, name in enumerate(graph["parameters"])}

    def seen(access: str) -> bool:
        place = places.get(re.split(r"\W", access, maxsplit=1)[0])
        return place is None or any(path.startswith(place) for path in written)

    kept = [one for one in graph.get("mutations", ()) if seen(one["access"])]
    return graph if len(kept) == len(graph.get("mutations", ())) else {**graph, "mutations": kept}
