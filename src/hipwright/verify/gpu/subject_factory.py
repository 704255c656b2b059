"""Creates the subjects that a GPU's worker runs and times from a loaded candidate. Imports torch.

Also decides whose fault an exception is, and whether the process can be used again, as the launchers know.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.device.gpu.faults import DEVICE_FAULT
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.errors import CandidateError, DeviceError, HipwrightError
from hipwright.program import Parsed, parse
from hipwright.program.blanking import CACHED_LENGTH
from hipwright.program.lower.trace import NoopLauncher
from hipwright.tensors import Tree
from hipwright.verify.gpu.subjects import ModelNewSubject, NoopTimingLauncher
from hipwright.verify.gpu.timing import SubjectTimer
from hipwright.verify.worker.program_subject import ProgramSubject
from hipwright.verify.worker.recorder import too_much_memory
from hipwright.verify.worker.watched import CallableSubject, RunSetting, WatchedCandidate


@dataclass
class LoadedCandidate:
    """One candidate. launchers: closed with it; results: outputs that stay on the device, by handle."""

    live: WatchedCandidate
    parsed: Parsed | None
    code: bytes
    init: dict[str, Any]
    launchers: list[Any] = field(default_factory=list)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    timers: dict[int, SubjectTimer] = field(default_factory=dict)


def parsed_text(text: str) -> Parsed:
    """A program's text, parsed; cached, as it is loaded once for verification and once for the trace.

    The result is not modified.
    """
    return _remembered(text) if len(text) <= CACHED_LENGTH else parse(text)


@functools.lru_cache(maxsize=8)
def _remembered(text: str) -> Parsed:
    return parse(text)


class SubjectFactory:
    """Creates the subjects of candidates. init: the worker's; driver: None for "cpu"; limit_bytes: of their memory."""

    def __init__(self, init: dict[str, Any], driver: Any, limit_bytes: int) -> None:
        self._init = init
        self._device = str(init["device"])
        self._driver = driver
        self._limit = limit_bytes

    def subject(self, loaded: LoadedCandidate, setting: RunSetting, table: Tree) -> CallableSubject:
        """The candidate on a state table, in the form for verification."""
        if loaded.parsed is None:
            from hipwright.program.modelnew import run  # only the workers of such files preload it

            subject = ModelNewSubject(run.load(loaded.init, table, self._device), table, self._device, setting.poison)
            loaded.launchers.append(subject)
            return subject
        return self._program(loaded, table, self._launcher(loaded, setting))

    def timed(self, loaded: LoadedCandidate, mode: str) -> CallableSubject:
        """A subject for timing: only what the plan does, without poison and zones. mode: "run" or "noop"."""
        if loaded.parsed is None:
            return loaded.live.subject
        if mode == "noop":
            return self._program(loaded, loaded.live.table, NoopTimingLauncher(self._device), record=False)
        if self._driver is None:
            return self._program(loaded, loaded.live.table, self._launcher(loaded, RunSetting()), record=False)
        launcher = GpuLauncher(
            self._driver,
            loaded.code,
            loaded.parsed.signatures,
            device=self._device,
            poison=None,
            zones=False,
            shared_with=_module(loaded),
        )
        launcher.record = False
        return self._program(loaded, loaded.live.table, launcher, record=False)

    def _program(self, loaded: LoadedCandidate, table: Tree, launcher: Any, *, record: bool = True) -> ProgramSubject:
        assert loaded.parsed is not None
        loaded.launchers.append(launcher)
        knobs = {str(k): int(v) for k, v in loaded.init["knobs"].items()}
        return ProgramSubject(
            loaded.parsed,
            knobs,
            table,
            launcher,
            self._device,
            limit_bytes=self._limit,
            record=record,
            draws=bool(loaded.init.get("draws")),
        )

    def _launcher(self, loaded: LoadedCandidate, setting: RunSetting) -> Any:
        assert loaded.parsed is not None
        if loaded.init["mode"] == "noop":
            return NoopLauncher(device=self._device, poison=setting.poison)
        signatures = loaded.parsed.signatures
        if self._driver is not None:
            return GpuLauncher(
                self._driver,
                loaded.code,
                signatures,
                device=self._device,
                poison=setting.poison,
                shared_with=_module(loaded),
            )
        return CpuLauncher(
            str(loaded.init["so"]),
            signatures,
            wave=int(self._init["wave"]),
            order=setting.order,  # type: ignore[arg-type]
            seed=setting.seed,
            poison=setting.poison,
            launch_limit_s=float(self._init["launch_limit_s"]),
        )


def device_memory() -> dict[str, int]:
    """Bytes: {"own": of this candidate's tensors at the most, "reserved": with what torch keeps, "others": of other
    processes now}.
    """
    free, total = torch.cuda.mem_get_info()
    others = max(0, total - free - torch.cuda.memory_reserved())
    own, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {"own": own, "reserved": reserved, "others": others}


def _ran_out(error: BaseException | None) -> bool:
    """Whether an error comes from one about memory."""
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        error = error.__cause__
    return False


@contextmanager
def faults(loaded: LoadedCandidate | None, on_gpu: bool) -> Iterator[None]:
    """Whose fault an exception is, and whether this process can be used again.

    evidence["out_of_memory"] of what comes from a want of memory: `device_memory`.
    """
    found: HipwrightError
    try:
        yield
    except HipwrightError as error:
        if on_gpu and _ran_out(error):
            error.evidence["out_of_memory"] = device_memory()
        if loaded is not None and any(getattr(launcher, "broken", False) for launcher in loaded.launchers):
            error.evidence["broken"] = True
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        found = DeviceError("the device has no room for the task's inputs or parameters")
        if loaded is not None:
            found = too_much_memory()
        if on_gpu:
            found.evidence["out_of_memory"] = device_memory()
            torch.cuda.empty_cache()
        raise found from error
    except Exception as error:
        if not (on_gpu and isinstance(error, RuntimeError) and DEVICE_FAULT.search(str(error))):
            if loaded is None or loaded.parsed is not None:
                raise
            raise CandidateError(  # outputs and parameters of host code may be any object
                f"what the candidate leaves cannot be looked at: {type(error).__name__}: {str(error)[:300]}",
                status="bad_output_spec",
                stage="launch",
            ) from error
        found = DeviceError(f"the device reports {str(error).splitlines()[0]}")
        for launcher in loaded.launchers if loaded is not None else []:
            if hasattr(launcher, "explain"):
                found = launcher.explain(error)
        found.evidence["broken"] = True
        raise found from error


def _module(loaded: LoadedCandidate) -> GpuLauncher | None:
    """The launcher that has the code on the device, as loading and unloading it wait for the whole device."""
    return next((one for one in loaded.launchers if isinstance(one, GpuLauncher) and not one.broken), None)
