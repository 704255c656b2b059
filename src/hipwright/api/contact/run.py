"""Runs the steps in order, and writes the page and the archive."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hipwright import __version__
from hipwright.api.contact import driver, programs, timing, trials
from hipwright.api.contact.steps import ContactReport, Step, StepFailed, Steps
from hipwright.api.files import prepare_folder, write_file
from hipwright.api.workbench import require_sandbox
from hipwright.device.amd import trials as device_trials
from hipwright.device.gpu_info import GpuInfo
from hipwright.events import Listener, silent
from hipwright.software_gpu import is_software
from hipwright.toolchain.amd import hiprtc
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.pool import CompilePool

ROUTES = {"hiprtc": hiprtc.HIPRTC, "hipcc": hiprtc.HIPCC, "clang": hiprtc.CLANG}
TRIALS = {
    "arguments": "arguments, grids and blocks reach a kernel",
    "bounds": "launches that cannot be are refused",
    "lds": "dynamic LDS up to the device's limit",
    "streams": "streams keep the order of launches",
    "graphs": "graphs of captured launches",
    "events": "times between events",
    "guards": "a write beside a buffer is found",
    "fault": "a write to an unmapped address is told",
}
RESERVE_S = 30.0  # of the time, for the page and the archive


@dataclass(frozen=True)
class ContactRequest:
    """What to do. out: the folder of the archive and the page. gpu: its number, None for the first. count: programs.

    minutes: for everything; programs that are not judged by then are left out. suite: other tasks than the suite's.
    """

    out: Path
    gpu: int | None = None
    count: int = 30
    minutes: float = 10.0
    suite: Path | None = None
    unsafe: bool = False


def run_contact(request: ContactRequest, *, listener: Listener = silent) -> ContactReport:
    """All steps; a failing one says what to do next, and the others go on.

    Raises DeviceError where there is no AMD GPU, SandboxMissing, and BadInput for a folder that cannot be written.
    """
    from hipwright.report.contact_page import render_contact

    end = time.monotonic() + 60 * request.minutes
    prepare_folder(request.out)
    require_sandbox(request.unsafe)
    gpu = driver.find_gpu(request.gpu)
    started = datetime.now(UTC)
    report = ContactReport(
        version=__version__,
        started=started.isoformat(timespec="seconds"),
        gpu=gpu.name,
        architecture=gpu.architecture,
        simulated=is_software(gpu.name),
    )
    contact = _Contact(request, gpu, report.simulated, Steps(listener), end)
    contact.run()
    name = f"hipwright-contact-{gpu.architecture}-{started:%Y%m%d-%H%M%S}"
    paths = {"archive": str(request.out / f"{name}.tar.gz"), "page": str(request.out / f"{name}.html")}
    report = replace(report, steps=tuple(contact.steps.done), rows=tuple(contact.rows), **paths)
    page = render_contact(report.to_dict())
    write_file(Path(report.page), page)
    _pack(Path(report.archive), name, report, page)
    return report


class _Contact:
    """The steps of one request. rows: of the programs."""

    def __init__(self, request: ContactRequest, gpu: GpuInfo, simulated: bool, steps: Steps, end: float) -> None:
        self.request, self.gpu, self.simulated, self.steps, self.end = request, gpu, simulated, steps, end
        self.rows: list[dict[str, Any]] = []

    def run(self) -> None:
        """Every step."""
        self.steps.run("driver", "driver, runtime and versions", partial(driver.driver_facts, self.gpu))
        with tempfile.TemporaryDirectory(prefix="hipwright-contact-") as name:
            folder = Path(name)
            codes = self._builds(BuildCache(folder / "cache"))
            for trial, title in TRIALS.items():
                self.steps.run(trial, title, partial(self._trial, trial, folder, codes), needs=("runtime",))
            self._timings()
            title = f"{self.request.count} programs against PyTorch"
            self.steps.run("programs", title, partial(self._programs, folder))

    def _builds(self, cache: BuildCache) -> dict[str, bytes]:
        """The trial kernels by every route, and which of them the runtime loads and runs."""
        codes: dict[str, bytes] = {}
        with hiprtc.zygote(unsafe=self.request.unsafe) as host, CompilePool(host, 1) as pool:
            for name, route in ROUTES.items():

                def build(name: str = name, route: str = route) -> dict[str, Any]:
                    source, arch = device_trials.SOURCE, self.gpu.architecture
                    facts = driver.build_by(route, source, arch, pool, cache, self.request.unsafe)
                    codes[name] = cache.get(facts.pop("blob"))
                    return facts

                self.steps.run(name, f"kernels built by {route}", build)
        if self.simulated:
            codes.pop("clang", None)  # it has no section for the simulator
        self.steps.run("runtime", "the runtime loads and runs what each route built", partial(self._loads, codes))
        return codes

    def _loads(self, codes: dict[str, bytes]) -> dict[str, Any]:
        """Raises StepFailed where the runtime runs none, or not all of the code objects."""
        said, failures = {}, []
        with tempfile.TemporaryDirectory(prefix="hipwright-contact-") as name:
            for route in list(codes):
                path = Path(name) / route
                path.write_bytes(codes[route])
                try:
                    trials.run_trial("arguments", self.gpu.index, path)
                    said[route] = "runs"
                except StepFailed as error:
                    said[route] = error.message
                    failures.append(error)
                    codes.pop(route)
        if not codes:
            first = failures[0] if failures else StepFailed("no route built a code object")
            raise StepFailed(first.message, hint=first.hint, output=getattr(first, "output", ""), facts=said)
        return {**said, "trials_use": next(iter(codes)), "output": "\n\n".join(one.output for one in failures)}

    def _trial(self, trial: str, folder: Path, codes: dict[str, bytes]) -> dict[str, Any]:
        path = folder / "trials.hsaco"
        path.write_bytes(next(iter(codes.values())))
        return trials.run_trial(trial, self.gpu.index, path)

    def _timings(self) -> None:
        with ExitStack() as stack:
            opened: list[Any] = []

            def torch() -> dict[str, Any]:
                opened.extend(stack.enter_context(timing.opened(self.gpu.index, unsafe=self.request.unsafe)))
                return timing.describe(opened[0])

            run = self.steps.run
            run("torch", "PyTorch on the GPU, in the sandbox", torch)
            run("a/a", "timing: the same work against itself", lambda: timing.against_itself(*opened), needs=("torch",))
            run("ceilings", "memory bandwidth and matrix rates", lambda: timing.ceilings(opened[0]), needs=("torch",))

    def _programs(self, folder: Path) -> dict[str, Any]:
        tasks = programs.choose(self.request.count, self.request.suite, small=self.simulated)
        left = self.end - time.monotonic() - RESERVE_S
        run = partial(programs.run_programs, limit_s=left, unsafe=self.request.unsafe)
        try:
            facts, rows = run(tasks, folder / "programs", self.gpu.index)
        except programs.ProgramsRefused as error:
            self.rows = [row.to_dict() for row in error.rows]
            raise
        self.rows = [row.to_dict() for row in rows]
        return facts


def _pack(path: Path, name: str, report: ContactReport, page: str) -> None:
    """One archive: results.json, the page, and the output of each step."""
    texts = {"results.json": json.dumps(report.to_dict(), indent=1), "page.html": page}
    texts |= {f"steps/{n:02}-{step.name.replace('/', '-')}.txt": _log(step) for n, step in enumerate(report.steps)}
    with tarfile.open(path, "w:gz") as archive:
        for file, text in texts.items():
            data = text.encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mtime = len(data), int(time.time())
            archive.addfile(entry, io.BytesIO(data))


def _log(step: Step) -> str:
    lines = [f"{step.title}: {step.status}, {step.seconds} s", step.message, step.hint and f"next: {step.hint}"]
    return "\n".join([*filter(None, lines), json.dumps(step.facts, indent=1), "", step.output, ""])
