"""Imports, in a zygote, what device hosts would import on first use, as `DEVICE_HOST_WARM`. Imports torch.

A process that has started CUDA cannot be forked to use it, and some torch releases start it while parts of them are
imported. So a fork imports all parts first, tests whether its own forks can use the device, and goes on as the zygote
where they can: imports that take seconds are not done twice. Where they cannot, or it dies, another tries part by part,
and only parts that pass are imported here.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from hipwright.sandbox.child import die_with_parent
from hipwright.targets import TORCH_GPU
from hipwright.task.host.double_precision import float64

importlib.import_module("hipwright.task.device.server")

LIMIT_S = 60  # for trying all parts
_LATE = (
    "sympy.combinatorics",
    "sympy.tensor.tensor",
    "torch._dynamo.backends.inductor",
    "torch._dynamo.repro.after_dynamo",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops.passes",
    "torch._inductor.async_compile",
    "torch._inductor.choices",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cuda.device_op_overrides",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.memory_planning",
    "torch._inductor.codegen.triton",
    "torch._inductor.fx_passes.efficient_conv_bn_eval",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.fx_passes.serialized_patterns",
    "torch._inductor.runtime.triton_heuristics",
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch.export._unlift",
    "torch.fx.experimental.validator",
    "triton.compiler.compiler",
    "triton.runtime.jit",
)
"""What torch.compile imports while it compiles for the first time."""
_ONCE = (
    ("torch._inductor.codegen.common", "init_backend_registration"),
    ("torch._inductor.codecache", "torch_key"),
    ("triton.runtime.cache", "triton_key"),
    ("triton.compiler.compiler", "triton_key"),
)
"""Functions whose results it keeps: names of backends, and digests of torch's and Triton's own sources."""
_DIED = 255  # exit code


def symbols() -> None:
    """Symbolic shapes: a part of what the first dispatch imports."""
    importlib.import_module("torch.fx.experimental.symbolic_shapes")


def frontend() -> None:
    """The tracer of Python code, of which that dispatch imports most."""
    importlib.import_module("torch._dynamo")


def dispatch() -> None:
    """The first dispatch of a widened operator, and what is left of its imports."""
    with float64():
        torch.nn.functional.layer_norm(torch.ones(2, 2), (2,)).sum()
    torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))


def baselines() -> None:
    """What torch.compile imports."""
    importlib.import_module("torch._inductor.compile_fx")


def compiling() -> None:
    """What torch.compile imports and reads once while it compiles; which of it there is depends on the release."""
    for name in _LATE:
        with suppress(Exception):
            module = importlib.import_module(name)
            for part in pkgutil.iter_modules(module.__path__ if name.endswith("_patterns") else ()):
                importlib.import_module(f"{name}.{part.name}")
    for name, function in _ONCE:
        with suppress(Exception):
            getattr(importlib.import_module(name), function)()


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


def goes_on_in_fork(stages: Sequence[Callable[[], None]], usable: Callable[[], bool]) -> bool:
    """True in a fork of this process where all stages leave a process whose forks are `usable`; this process then waits
    for it, and ends as it does. False here, with no stage done, where they do not, or where one dies or hangs.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        if not _passed(stages, usable):
            os._exit(_DIED)
        os.write(writing, b"!")
        os.close(writing)
        return True
    os.close(writing)
    went_on = os.read(reading, 1) == b"!"
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if went_on:
        os._exit(code if code >= 0 else _DIED)
    return False


def _passed(stages: Sequence[Callable[[], None]], usable: Callable[[], bool]) -> bool:
    """Whether all stages ran in this fork, within LIMIT_S, and its forks are usable."""
    die_with_parent()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT_S)
    try:
        for stage in stages:
            stage()
    except Exception:  # this torch has no such part
        return False
    signal.alarm(0)
    return _in_fork(lambda: int(usable())) == 1


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


def warm() -> None:
    """Imports what leaves the forks of this process able to use the device; may return in a fork of it."""
    if goes_on_in_fork(STAGES, device_works):
        goes_on_in_fork((compiling,), device_works)
        return
    for stage in STAGES[: harmless(STAGES, device_works)]:
        stage()
