"""Imports, in a zygote, what device hosts would import on first use: Zygote(("torch", "hipwright.task.device.warm")).
Imports torch.

A process that has started CUDA cannot be forked to use it, and some torch releases start it while parts of them are
imported. So a fork imports each part first, and tests whether its own forks can use the device. Only parts that pass
are imported here.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable, Sequence

import torch

from hipwright.targets import TORCH_GPU
from hipwright.task.host.double_precision import float64

importlib.import_module("hipwright.task.device.server")

LIMIT_S = 60  # for trying all parts
_DIED = 255  # exit code


def symbols() -> None:
    """Symbolic shapes: a third of what the first dispatch imports."""
    importlib.import_module("torch.fx.experimental.symbolic_shapes")


def frontend() -> None:
    """The tracer of Python code, of which that dispatch imports most."""
    importlib.import_module("torch._dynamo")


def dispatch() -> None:
    """The first dispatch of a widened operator; with the stages before, three seconds of imports."""
    with float64():
        torch.nn.functional.layer_norm(torch.ones(2, 2), (2,)).sum()
    torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))


def baselines() -> None:
    """What torch.compile imports."""
    importlib.import_module("torch._inductor.compile_fx")


def harmless(stages: Sequence[Callable[[], None]], usable: Callable[[], bool]) -> int:
    """How many of the stages, in order, leave a process whose forks are `usable`. Tried in a fork; 0 where it dies."""

    def tried() -> int:
        for count, stage in enumerate(stages):
            try:
                stage()
            except Exception:  # this torch has no such part
                return count
            if _in_fork(lambda: int(usable())) != 1:
                return count
        return len(stages)

    return max(0, _in_fork(tried))


def device_works() -> bool:
    """Whether this process can use the device; True for a torch without device support."""
    if torch.version.cuda is None and torch.version.hip is None:
        return True
    return bool(torch.zeros(1, device=TORCH_GPU).add_(1.0).item() == 1.0)


def _in_fork(work: Callable[[], int]) -> int:
    """What `work` returns in a fork of this process; -1 where it raises, dies or takes too long."""
    pid = os.fork()
    if pid == 0:
        code = _DIED
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_S)
            torch.set_num_threads(1)  # a fork does not have the thread pool of this process
            code = work()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if 0 <= code < _DIED else -1


STAGES = (symbols, frontend, dispatch, baselines)
for _stage in STAGES[: harmless(STAGES, device_works)]:
    _stage()
