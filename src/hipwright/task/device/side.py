"""The timed sides of the device host: eager, torch.compile and the copy (hipwright.device.timed_side).

The model runs as the file has it: its own dtype, the mode its constructor left, torch.no_grad(), the flags that the
file set (which apply in this process alone) and torch's defaults otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hipwright.device.rotation import Rotation
from hipwright.digest import span
from hipwright.errors import TaskError
from hipwright.targets import TORCH_GPU
from hipwright.task.device.model import DeviceFile
from hipwright.task.host import state as states
from hipwright.task.host.reference import named_leaves
from hipwright.tensors import Tree

COMPILED: dict[str, dict[str, Any]] = {
    "compile": {"dynamic": False},
    # without the mode's own graphs: hipwright captures either every side or none
    "max-autotune": {"dynamic": False, "mode": "max-autotune-no-cudagraphs"},
}
"""The arguments of torch.compile for each baseline."""
COMPARED, COMPARED_MS = 3, 0.5
"""Blocks of each way to copy, and the milliseconds of one, before the faster way is chosen."""


class Turning:
    """One side over a rotation of slots. notes: how it runs."""

    notes: list[str]
    _rotation: Rotation

    def prepare(self, calls: int) -> dict[str, Any]:
        """{"policy", "why", "call_ms"}: warms up every slot, captures if requested, then runs about `calls` calls."""
        return self._rotation.prepare(calls)

    def stream(self, why: str) -> None:
        """Drops the graphs."""
        self._rotation.launch_on_stream(why)

    def block(self, calls: int) -> dict[str, float]:
        """{"device_ms", "host_ms"} of `calls` calls in a row."""
        return self._rotation.block(calls)

    def latency(self, calls: int) -> list[float]:
        """Milliseconds of single calls, each synchronised, never from a graph."""
        return self._rotation.latency(calls)


class CopySide(Turning):
    """A copy that moves `moved` bytes, half of them read and half written, at the memory's speed.

    It has as many pairs of buffers as there are slots, so that the cache helps it no more than the others. On a GPU it
    is the faster of a library's copy and of a kernel that reads and writes as much: captured copies of some sizes take
    half as long again as the same copies launched (H200: 400 instead of 264 us for twice 512 MiB).
    """

    def __init__(self, moved: int, slots: int, device: torch.device, *, graph: bool) -> None:
        self.notes = []
        size = max(16, -(-moved // 32) * 16)
        pairs = [torch.ones(2, size, dtype=torch.uint8, device=device) for _ in range(slots)]
        stream = torch.cuda.Stream(device) if device.type == TORCH_GPU else None

        def around() -> Any:
            return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()

        def turns(call: Callable[[int], Any]) -> Rotation:
            return Rotation(call, slots, device, graph=graph, around=around, stream=stream)

        words = [pair.view(torch.int32) for pair in pairs]
        self._rotation = turns(lambda slot: pairs[slot][1].copy_(pairs[slot][0]))
        self._ways = [self._rotation]
        if stream is not None:
            self._ways.append(turns(lambda slot: torch.bitwise_not(words[slot][0], out=words[slot][1])))

    def prepare(self, calls: int) -> dict[str, Any]:
        """See `Turning.prepare`; of the faster way."""
        reply = [way.prepare(calls) for way in self._ways]
        if len(reply) > 1:
            some = [max(1, min(1000, round(COMPARED_MS / max(each["call_ms"], 1e-4)))) for each in reply]
            for _ in range(COMPARED):
                for way, each, count in zip(self._ways, reply, some, strict=True):
                    spent = way.block(count)
                    each["call_ms"] = min(each["call_ms"], spent["device_ms"] / spent["calls"])
        best = min(range(len(reply)), key=lambda n: reply[n]["call_ms"])
        self._rotation = self._ways[best]
        return reply[best]

    def stream(self, why: str) -> None:
        """Drops the graphs of both ways."""
        for way in self._ways:
            way.launch_on_stream(why)


class ModelSide(Turning):
    """One baseline on its slots. mode: "eager" or a key of COMPILED; `graph` asks for CUDA graphs."""

    def __init__(
        self, file: DeviceFile, state: Tree, slots: list[list[Any]], *, mode: str, graph: bool, pool: Any
    ) -> None:
        self.file, self.slots = file, slots
        self.notes: list[str] = []
        self._device = file.device
        self._stream = torch.cuda.Stream(file.device) if file.device.type == TORCH_GPU else None
        self._model = self._run = file.model(state)
        self._default_device = False
        if mode in COMPILED:
            self._run = file.file.guarded(lambda: torch.compile(self._run, **COMPILED[mode]), "torch.compile")
        self._first_call()
        run, mine = self._run, self.slots
        # the graphs share a memory pool with the other side's, as replays never overlap
        self._rotation = Rotation(
            lambda slot: run(*mine[slot]),
            len(slots),
            file.device,
            graph=graph,
            around=self._around,
            stream=self._stream,
            pool=pool,
            keep_outputs=len(slots) > 1,
        )

    def renewable(self, slot: int, inputs: list[Any]) -> bool:
        """Whether other inputs lie as a slot's do, and every parameter can be written in place."""
        mine, other = ([(t.shape, t.stride(), t.dtype) for t in _tensors(one)] for one in (self.slots[slot], inputs))
        held = (*states.parameters(self._model), *states.buffers(self._model))
        return mine == other and all(
            step or n < 2 for _, t in held for step, n in zip(t.stride(), t.shape, strict=True)
        )

    def renew(self, slot: int, inputs: list[Any]) -> None:
        """Writes other values over a slot's: what was compiled and captured stays."""
        for mine, other in zip(_tensors(self.slots[slot]), _tensors(inputs), strict=True):
            span(mine).copy_(span(other))

    def set_state(self, state: Tree) -> None:
        """Writes a state table over the model's."""
        states.apply(self._model, state)

    def _first_call(self) -> None:
        """Compiles if requested. Without torch's default-device mode if the model can, as the mode costs time."""
        try:
            self._call_once()
        except TaskError:
            self._default_device = True
            self.notes.append("forward makes tensors without naming a device: runs under torch's default-device mode")
            self._call_once()

    def _call_once(self) -> None:
        with torch.no_grad(), self._around():
            self.file.file.guarded(lambda: self._run(*self.slots[0]), "forward")
            if self._stream is not None:
                torch.cuda.synchronize(self._device)

    @contextlib.contextmanager
    def _around(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self._stream is not None:
                stack.enter_context(torch.cuda.stream(self._stream))
            if self._default_device:
                stack.enter_context(self._device)
            yield


def _tensors(value: Any) -> list[torch.Tensor]:
    return [tensor for _, tensor in named_leaves("", value)]


def flags() -> dict[str, Any]:
    """Global settings that change a baseline, as they are now: torch's defaults or what the file set."""
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "matmul_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "fp16_reduced_precision": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced_precision": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }
