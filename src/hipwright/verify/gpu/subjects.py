"""ModelNew candidates and no-op launchers of the GPU worker, the start of its device, and background work there.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hipwright.device.gpu.faults import DEVICE_FAULT, fault_status
from hipwright.device.gpu.memory import GuardedDevice
from hipwright.device.graph_pool import GraphPool
from hipwright.errors import CandidateError, HipwrightError
from hipwright.records import TensorSpec
from hipwright.targets import TORCH_GPU
from hipwright.torchio import NAMES, full_precision
from hipwright.verify.worker.trees import read, tensors_of

Tensor = Any
PLAIN = (torch.Tensor, torch.nn.Parameter)
SHARE = 0.6  # of the device's memory, for candidates
IDLE_BYTES = 4 << 30  # memory that torch may keep between two programs
NOISE_BYTES = 64 << 20
NOISE_ROUNDS = 24


def start_gpu(device: str, limit_bytes: int) -> int:
    """Creates torch's context, loads what a first call would load lazily, and limits torch's memory; returns the limit
    in bytes.

    limit_bytes: 0 for `SHARE` of the device, so that the reference has memory whatever a candidate allocates.
    """
    torch.cuda.set_device(device)
    full_precision()
    _, total = torch.cuda.mem_get_info(device)
    limit = limit_bytes or int(total * SHARE)
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)
    probe = torch.arange(16, dtype=torch.int32, device=device)
    torch.stack([(probe != probe.flip(0)).any(), (probe.view(torch.uint8) != 0).any()]).tolist()
    torch.cuda.synchronize(device)
    return limit


def free_unused_memory(device: str, pool: GraphPool) -> None:
    """Returns unused memory to the device, as other processes need it."""
    if torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) > IDLE_BYTES:
        pool.release()
        torch.cuda.empty_cache()


class BackgroundLoad:
    """Work on another stream, so that blocks are scheduled differently."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._held: Any = None

    def make(self) -> None:
        """Starts some of it."""
        if self._held is None:
            self._held = torch.zeros(NOISE_BYTES // 4, device=self._device), torch.cuda.Stream(self._device)
        values, stream = self._held
        with torch.cuda.stream(stream):
            for _ in range(NOISE_ROUNDS):
                values.add_(1.0)


class ModelNewSubject:
    """A `modelnew` candidate. inner: what program.modelnew.run.load returns, which is called and has params and
    buffers.

    Its code runs in this process, so nothing that it reports is evidence; its inputs lie between red zones. Buffers of
    the reference that it lacks count as unchanged.
    """

    def __init__(self, inner: Any, table: Any, device: str, poison: int) -> None:
        self.inner = inner
        # detached: the same memory, which this process writes between calls
        self.params: dict[str, Tensor] = {path: tensor.detach() for path, tensor in inner.params.items()}
        self.buffers: dict[str, Tensor] = {
            path: inner.buffers[path] if path in inner.buffers else given.clone()
            for path, given in table["buffers"].items()
        }
        self.broken = False
        self._device = torch.device(device)
        self._memory = GuardedDevice(device)
        self._poison = poison

    def forward(self, *inputs: Any) -> Any:
        """The outputs. Raises CandidateError for any exception of its code, and for subclasses of Tensor."""
        try:
            outputs = self.inner(*inputs)
            odd = next((t for t in tensors_of(outputs) if type(t) not in PLAIN), None)
        except HipwrightError:
            raise
        except Exception as error:
            raise self.explain(error) from error
        if odd is not None:
            raise CandidateError(
                f"an output is a {type(odd).__name__}, not a plain tensor", status="bad_output_spec", stage="launch"
            )
        return outputs

    def guard(self, tensor: Tensor) -> Tensor:
        """A copy between red zones."""
        return self._memory.copy(tensor, self._poison)

    def settle(self) -> None:
        """Waits for the device; raises for its faults and for writes next to the inputs."""
        if self._device.type == TORCH_GPU:
            try:
                torch.cuda.synchronize(self._device)
            except RuntimeError as error:
                raise self.explain(error) from error
        if strays := self._memory.strays():
            raise CandidateError(
                f"a write {strays[0].offset} bytes from the start of an input of {strays[0].size} bytes",
                status="out_of_bounds",
                stage="launch",
                evidence={"kind": "write"},
            )

    def deferred_settle(self, flags: Sequence[Tensor], staging: Any = None) -> Callable[[], list[bool]]:
        """A function that does as `settle`, for work on every stream, and returns the flags' values."""

        def look() -> list[bool]:
            self.settle()
            return read(flags)

        return look

    def explain(self, error: BaseException) -> CandidateError:
        """An exception of its code as a CandidateError."""
        message = (str(error).splitlines() or [""])[0][:500]
        if self._device.type == TORCH_GPU and DEVICE_FAULT.search(str(error)):
            self.broken = True
            return CandidateError(f"the device reports {message}", status=fault_status(message), stage="launch")
        return CandidateError(
            f"forward raised {type(error).__name__}: {message}", status="launch_error", stage="launch"
        )

    def stats(self) -> list[dict[str, Any]]:
        """The launches that it reports, with argument_bytes."""
        return [{"argument_bytes": 0, **entry} for entry in getattr(self.inner, "launches", None) or []]


class NoopTimingLauncher:
    """A launcher for timing a plan without its kernels: launches do nothing; new tensors are allocated once and are
    zero.

    Zero, because a library operator may use what a kernel should have written as an index.
    """

    def __init__(self, device: str) -> None:
        self.launches: list[dict[str, Any]] = []
        self._device = device
        self._made: dict[tuple[tuple[int, ...], Any], Tensor] = {}

    def launch(self, kernel: str, grid: Any, block: Any, lds_bytes: int, args: Any) -> None:
        """Does nothing."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """Zeros, the same tensor for the same shape."""
        key = tuple(shape), dtype
        if key not in self._made:
            self._made[key] = torch.zeros(key[0], dtype=dtype, device=self._device)
        return self._made[key]


def spec_of(tensor: Tensor, device: str) -> TensorSpec:
    """The spec of a tensor. Raises TypeError for one that cannot be compared."""
    if tensor.device != torch.device(device):
        raise TypeError(f"a tensor on {tensor.device}, not on {device}")
    if tensor.dtype not in NAMES:
        raise TypeError(f"tensors of {tensor.dtype} are not supported")
    return TensorSpec(dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape), stride=tuple(tensor.stride()))
