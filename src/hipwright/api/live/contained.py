"""A verified program on this machine's processor, in a contained process as the `cpu` target runs it."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hipwright import config
from hipwright.errors import BadInput, CompileError, GuardFailed
from hipwright.program import parse
from hipwright.records import Program
from hipwright.sandbox import Limits, Session, Zygote
from hipwright.tensors import Tree
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.torchio import from_torch, tree_from_torch, tree_to_torch

WAVE = 64
CALL_S = 600.0
LAUNCH_S = 60.0
DAY_S = 24 * 3600.0


class ContainedProgram:
    """One program in a process of its own, which is started with the first call. For several threads.

    empty_state: the state table of the task (`task.host.state`), whose tensors each call replaces by the live ones. The
    process holds copies: a call costs milliseconds beside the kernels, which run on fibers and not at a GPU's speed.
    """

    device = "cpu"

    def __init__(self, program: Program, empty_state: Tree, *, unsafe: bool = False) -> None:
        self._program, self._table, self._unsafe = program, empty_state, unsafe
        self._held: list[Session] = []  # of none or one
        weakref.finalize(self, _end, self._held)
        self._sent: list[tuple[torch.Tensor, int]] = []  # the live tensors and their versions
        self._lock = threading.Lock()

    def __call__(
        self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], dict[str, torch.Tensor]]:
        """(outputs, buffers afterwards) of one call. state: by the task's names.

        Raises GuardFailed for shapes that the program declines, and the errors of `hipwright.errors` for faults.
        """
        with self._lock:
            session = self._ready(state)
            try:
                _, tree = session.call("run", {}, tree_from_torch(list(inputs)), timeout_s=CALL_S)
            except GuardFailed:
                raise
            except BaseException:
                _end(self._held)
                raise
        assert isinstance(tree, dict)
        outputs = tree_to_torch(tree["outputs"])
        return outputs, tree_to_torch(tree.get("buffers") or {})

    def _ready(self, state: Mapping[str, torch.Tensor]) -> Session:
        """The process, with the state as it is now."""
        versions = [(tensor, -1 if tensor.is_inference() else tensor._version) for tensor in state.values()]
        alive = bool(self._held) and self._held[0].alive
        if alive and _same(versions, self._sent):
            return self._held[0]
        for group in ("params", "buffers"):
            held = self._table[group]
            held.update({name: from_torch(state[name]) for name in held if name in state})
        if alive:
            self._held[0].call("mutate", {"carried": []}, self._table, timeout_s=CALL_S)
        else:
            self._held[:] = [self._start()]
        self._sent = versions
        return self._held[0]

    def _start(self) -> Session:
        parsed = parse(self._program.text)
        cache = BuildCache(config.cache_dir())
        cache.folder.mkdir(parents=True, exist_ok=True)
        knobs = parsed.defines(self._program.knobs)
        build = cpu.build(parsed.hip, knobs, wave=WAVE, checked=False, cache=cache, unsafe=self._unsafe)
        if not build.ok:
            raise CompileError(f"the program does not compile for this processor: {build.log[:300]}")
        init: dict[str, Any] = {
            "text": self._program.text,
            "knobs": self._program.knobs,
            "mode": "run",
            "wave": WAVE,
            "launch_limit_s": LAUNCH_S,
            "so": str(cache.path(build.blob)),
        }
        limits = Limits(wall_s=CALL_S, cpu_s=DAY_S, memory_mb=16384)
        return processes(self._unsafe).session(
            "hipwright.verify.cpu.worker:CpuWorker", init, self._table, limits=limits
        )

    def close(self) -> None:
        """Ends the process; the next call starts another."""
        with self._lock:
            _end(self._held)

    def __deepcopy__(self, memo: object) -> ContainedProgram:
        return self  # stateless between calls

    def __reduce__(self) -> Any:
        raise BadInput("a program in a process cannot be pickled", hint="result.save(folder), hipwright.load(folder)")


def _end(held: list[Session]) -> None:
    while held:
        held.pop().close()


def _same(now: Sequence[tuple[torch.Tensor, int]], before: Sequence[tuple[torch.Tensor, int]]) -> bool:
    """Whether these are the tensors that were sent, unchanged; one without a version may have changed."""
    pairs = zip(now, before, strict=False)
    return len(now) == len(before) and all(a is b and v == w and v >= 0 for (a, v), (b, w) in pairs)


_started: dict[bool, Zygote] = {}
_starting = threading.Lock()


def processes(unsafe: bool) -> Zygote:
    """The zygote of all programs that this process calls; it ends with the process."""
    with _starting:
        if unsafe not in _started:
            cache = config.cache_dir()
            cache.mkdir(parents=True, exist_ok=True)
            preload = ("torch", "hipwright.verify.cpu.worker", "hipwright.verify.worker.warm")
            zygote = Zygote(preload, unsafe=unsafe, name="candidate worker", ro=(cache,))
            atexit.register(zygote.close)
            _started[unsafe] = zygote
        return _started[unsafe]
