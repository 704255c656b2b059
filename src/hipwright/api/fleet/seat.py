"""What a seat runs for searches, ablations and audits: a machine of its own, and the tasks that are open on it."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack
from statistics import median
from typing import Any

from hipwright.api.workbench import require_sandbox
from hipwright.device.fingerprint import NodeFingerprint, fingerprint, trouble
from hipwright.errors import DeviceError, InfrastructureError
from hipwright.evaluation import Evaluator
from hipwright.evaluation.faults import as_error, failed_by_machine
from hipwright.evaluation.program_stages import compile_ahead
from hipwright.events import silent
from hipwright.fleet.gpu import gpu_of
from hipwright.fleet.records import Order
from hipwright.machine import Workbench, machine
from hipwright.measure.drift import BaselineDrift
from hipwright.records import Evaluation, Program, content_key
from hipwright.sandbox import Limits
from hipwright.verify import Oracle

OPEN_ON_GPU, OPEN_ON_CPU = 1, 3
"""Tasks that stay open: each holds memory of the GPU."""


class EvaluationSeat:
    """Opens tasks and evaluates programs of them. setup: "targets", "unsafe", "limits", and "device" as nodes label it.

    Orders: {"name", "text", "seed": the task and the seed of its inputs, "what": "open" or "evaluate"}; to evaluate
    also "program", "draw": the seed of other inputs, or None, "thorough", "gate", "timed", and "fingerprint": that
    of the seat that the run began with.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        require_sandbox(setup["unsafe"])
        self._device, self._limits = setup["device"], Limits.from_dict(setup["limits"])
        with ExitStack() as stack:
            self._machine = stack.enter_context(machine(tuple(setup["targets"]), unsafe=setup["unsafe"]))
            self._open: OrderedDict[str, tuple[Workbench, ExitStack]] = OrderedDict()
            stack.callback(self._close_tasks)
            self._stack = stack.pop_all()
        self._kept, self._drift = OPEN_ON_GPU if self._machine.gpus else OPEN_ON_CPU, BaselineDrift()

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """The node, with the GPU that this seat uses."""
        return fingerprint(gpu_of(self._machine), neighbours=neighbours, host=host)

    def build(self, order: Order) -> Program | None:
        """The program, compiled for the seat's GPU."""
        if order.payload["what"] == "open":
            return None
        program = Program.from_dict(order.payload["program"])
        compile_ahead(program, self._machine.gpus)
        return program

    def prepare(self, order: Order) -> None:
        """Opens the order's task, unless it is open. Raises the task's own error."""
        if order.group in self._open:
            self._open.move_to_end(order.group)
            return
        while len(self._open) >= self._kept:
            self._open.popitem(last=False)[1][1].close()
        asked = order.payload
        with ExitStack() as stack:
            opening = self._machine.open_text(asked["name"], asked["text"], seed=asked["seed"], listener=silent)
            bench = stack.enter_context(opening)
            bench.evaluator.limits = self._limits
            self._open[order.group] = (bench, stack.pop_all())

    def evaluate(self, order: Order, built: Program | None) -> Any:
        """What the task is here, or the evaluation. Raises the machine's fault, which another seat may not meet."""
        bench, _ = self._open[order.group]
        evaluator, asked = bench.evaluator, order.payload
        own = self._fingerprint(evaluator)
        if built is None:
            return {
                "task": bench.handle.task.key,
                "fingerprint": own,
                "architectures": dict(evaluator.architectures),
                "device_names": dict(evaluator.device_names),
            }
        if own != asked["fingerprint"]:
            raise InfrastructureError("this node has another compiler, cost model or device than the run began with")
        other = None if asked["draw"] is None else Oracle(bench.handle, seed=asked["draw"])
        how = {name: asked[name] for name in ("thorough", "gate", "timed")}
        found = evaluator.evaluate(built, other, **how)
        if failed_by_machine(found):
            raise as_error(found)
        if off := self._drift.off(order.group, _eager_ms(found)):
            raise DeviceError(off)
        return found.to_dict()

    def doubt(self, value: Any) -> str:
        """What the driver says of the GPU: memory errors, clocks that are held down."""
        return trouble(gpu_of(self._machine))

    def close(self) -> None:
        """Ends the processes."""
        self._stack.close()

    def _fingerprint(self, evaluator: Evaluator) -> str:
        """The evaluator's, with the device's name in place of its number: seats of one place have the same."""
        devices = [content_key(kind, one, self._device) for kind, one in evaluator.architectures.items()]
        return evaluator.fingerprint_on(devices)

    def _close_tasks(self) -> None:
        while self._open:
            self._open.popitem()[1][1].close()


def _eager_ms(found: Evaluation) -> float | None:
    """What eager took beside a timed program; None where nothing was timed."""
    timings = [one.timing for one in found.targets.values() if one.timing is not None]
    return next((median(one.versus["eager"].baseline_ms) for one in timings if "eager" in one.versus), None)
