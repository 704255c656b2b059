"""Generated kernels on the cpu target and on a simulated one, on the same inputs: equal bits, or why not.

The programs are this repository's own and run in this process, without a sandbox, as those of benchmarks/fuzz.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.simulated.kernel_text import INPUTS, GeneratedKernel, source
from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.device.sim.launcher import SimLauncher
from hipwright.errors import CandidateError, DeviceError
from hipwright.records import Build
from hipwright.targets import TARGETS
from hipwright.toolchain.amd import offline
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.sim import build as simulated
from hipwright.toolchain.sim import runtime

_KINDS = ("int32", "float32", "uint16", "uint8", "int32", "int64", "float32", "float64", "uint16", "int32")
_NAMES = ("xi", "xf", "xs", "xb", "oi", "ol", "of", "od", "os", "counters")
_OUTPUTS = {"oi": (4, torch.int32), "ol": (2, torch.int64), "of": (3, torch.float32), "od": (1, torch.float64)}
LIMIT_S = 20.0
Outputs: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
SHRINK_S = 60.0


@dataclass(frozen=True)
class _Param:
    name: str
    pointer: bool
    kind: str


@dataclass(frozen=True)
class _Signature:
    name: str
    params: tuple[_Param, ...] = (
        *(_Param(name, True, kind) for name, kind in zip(_NAMES, _KINDS, strict=True)),
        _Param("n", False, "int32"),
    )


@dataclass(frozen=True)
class KernelVerdict:
    """status: "equal", "differs", "zero's sign" where nothing else differs, "unsupported" for an instruction that the
    simulator refuses by name, "not built" where a compiler refuses the source; else the status of what the cpu target
    ("cpu ...") or the simulator refuses.
    """

    kernel: GeneratedKernel
    status: str
    message: str = ""


@dataclass
class KernelJudge:
    """Builds and runs kernels. target: the simulated one; cache: of the executor; builds: of the kernels' builds."""

    target: str
    cache: BuildCache
    builds: BuildCache

    @property
    def wave(self) -> int:
        """Lanes of a wave."""
        return TARGETS[self.target].architecture.wave

    def judged(self, kernels: Sequence[GeneratedKernel]) -> list[KernelVerdict]:
        """The verdict on each; they are compiled together, and one by one where that fails."""
        text = source(list(kernels))
        host = self._cpu(text)
        gpu = self._simulated(text)
        if not (host.ok and gpu.ok):
            if len(kernels) > 1:
                half = len(kernels) // 2
                return self.judged(kernels[:half]) + self.judged(kernels[half:])
            return [KernelVerdict(kernels[0], "not built", (host.log or gpu.log)[-300:])]
        signatures = {kernel.name: _Signature(kernel.name) for kernel in kernels}
        limit = {"launch_limit_s": LIMIT_S}
        first = CpuLauncher(str(self.builds.path(host.blob)), signatures, wave=self.wave, **limit)
        library = str(runtime.library(self.cache, unsafe=True))
        second = SimLauncher(library, str(self.builds.path(gpu.blob)), signatures, **limit)
        return [self._compared(kernel, first, second) for kernel in kernels]

    def shrunk(self, verdict: KernelVerdict) -> KernelVerdict:
        """The smallest kernel that was found to end in the same way, within SHRINK_S."""
        until = time.monotonic() + SHRINK_S
        least, again = verdict, True
        while again:
            again = False
            for smaller in least.kernel.smaller():
                if time.monotonic() > until:
                    return least
                found = self.judged([smaller])[0]
                if found.status == verdict.status:
                    least, again = found, True
                    break
        return least

    def _cpu(self, text: str) -> Build:
        return cpu.build(text, {}, wave=self.wave, side="amd", cache=self.builds, unsafe=True)

    def _simulated(self, text: str) -> Build:
        made = offline.build(text, TARGETS[self.target].architecture.name, {}, cache=self.builds, unsafe=True)
        if not made.ok:
            return made
        return simulated.from_assembly(self.builds.get(made.isa_blob).decode(), self.target, made, self.builds)

    def _compared(self, kernel: GeneratedKernel, first: CpuLauncher, second: SimLauncher) -> KernelVerdict:
        try:
            expected = _outputs(kernel, first)
        except CandidateError as error:
            return KernelVerdict(kernel, f"cpu {error.status}", error.message[:300])
        try:
            found = _outputs(kernel, second)
        except CandidateError as error:
            return KernelVerdict(kernel, error.status, error.message[:300])
        except DeviceError as error:
            return KernelVerdict(kernel, "unsupported", error.message[:300])
        return _difference(kernel, expected, found)


def _difference(kernel: GeneratedKernel, expected: Outputs, found: Outputs) -> KernelVerdict:
    """The first output that differs, those of which only the signs of zeros differ last."""
    zeros = None
    for name, one in expected.items():
        other = found[name]
        unequal = np.flatnonzero(one != other)
        if not len(unequal):
            continue
        at = int(unequal[0])
        message = f"{name}[{at}] is {other[at]:#x}, expected {one[at]:#x} ({len(unequal)} differ)"
        top = one.dtype.type(1 << (8 * one.itemsize - 1))
        if name not in ("of", "od", "os") or ((one[unequal] | other[unequal]) & ~top).any():
            return KernelVerdict(kernel, "differs", message)
        zeros = zeros or KernelVerdict(kernel, "zero's sign", message)
    return zeros or KernelVerdict(kernel, "equal")


def _inputs() -> Mapping[str, torch.Tensor]:
    """The inputs of all kernels: plain and special integers, floats and halves."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 32, INPUTS, dtype=np.uint64).astype(np.uint32)
    words[::3] &= np.uint32(255)
    words[5::16] = np.resize([0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF], len(words[5::16]))
    floats = (rng.normal(size=INPUTS) * 2.0 ** rng.integers(-12, 13, INPUTS)).astype(np.float32)
    floats[7::32] = np.resize([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 1.0], len(floats[7::32]))
    halves = rng.normal(size=INPUTS).astype(np.float16)
    halves[9::32] = np.resize([0.0, -0.0, 6e-8, 65504.0, np.inf, 1.0, -2.0, 0.5], len(halves[9::32]))
    return {
        "xi": torch.from_numpy(words.view(np.int32)),
        "xf": torch.from_numpy(floats),
        "xs": torch.from_numpy(halves.view(np.int16)).view(torch.uint16),
        "xb": torch.from_numpy(rng.integers(0, 256, INPUTS).astype(np.uint8)),
    }


def _outputs(kernel: GeneratedKernel, launcher: CpuLauncher | SimLauncher) -> Outputs:
    """The bits of a kernel's outputs as unsigned numbers; every NaN is the same one."""
    threads = kernel.block * kernel.grid
    made = {name: torch.zeros(size * threads, dtype=dtype) for name, (size, dtype) in _OUTPUTS.items()}
    made["os"] = torch.zeros(4 * threads, dtype=torch.int16).view(torch.uint16)
    made["counters"] = torch.zeros(96, dtype=torch.int32)
    tensors = {**_inputs(), **made}
    launcher.launch(
        kernel.name, (kernel.grid, 1, 1), (kernel.block, 1, 1), 0, (*(tensors[name] for name in _NAMES), threads - 3)
    )
    found = {}
    for name, tensor in made.items():
        if tensor.is_floating_point():
            tensor = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor)
        bits = tensor.numpy()
        found[name] = bits.view({8: np.uint64, 4: np.uint32, 2: np.uint16}[bits.itemsize])
    halves = found["os"].reshape(-1, 4)
    plain = halves[:, :2].view(np.float16)
    halves[:, :2] = np.where(np.isnan(plain), np.uint16(0x7E00), halves[:, :2])
    return found
