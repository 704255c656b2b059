"""The process under the profiler: runs one program's `forward` on a GPU, WARM_CALLS times, then once to be profiled.

`python -m hipwright.measure.profiling.profiled_process FOLDER`, where FOLDER holds what `profiler.write_job` wrote: the
program's text (parsed, never executed), its code object, inputs and state. It runs no host code of the candidate. The
last line of its stdout is `MARK` and one JSON object: the launches of the program's own kernels in one call. Imports
torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from hipwright.device.gpu.driver import GpuDriver
from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.device.open import check_arguments, open_driver
from hipwright.errors import HipwrightError
from hipwright.measure.profiling.profiler import CODE, DATA, JOB, MARK, WARM_CALLS, ProfileJob
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.program.lower.table import to_device
from hipwright.sandbox import protocol
from hipwright.targets import TORCH_GPU_0
from hipwright.tensors import Tree, read_bundle


def run(folder: Path, driver: GpuDriver, device: str) -> list[dict[str, Any]]:
    """The launches of one profiled call. Raises CandidateError for what the program does wrong."""
    job, code = ProfileJob.from_json((folder / JOB).read_bytes()), (folder / CODE).read_bytes()
    parsed = parse(job.text)
    check_arguments(job.target, code, parsed.signatures)
    launcher = GpuLauncher(driver, code, parsed.signatures, device=device, poison=None, zones=False)
    data = _read(folder / DATA)
    plan = lower(parsed, job.knobs, data["state"], launcher, allow_random=True, device=device)
    inputs = to_device(data["inputs"], device)
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            plan.forward(*inputs)
        launcher.sync()
        before = len(launcher.stats())
        with _recorded(device):
            plan.forward(*inputs)
            launcher.sync()
    return launcher.stats()[before:]


@contextmanager
def _recorded(device: str) -> Iterator[None]:
    """Marks the launches that ncu records (rocprofv3 records every launch)."""
    if device == "cpu" or torch.version.hip:
        yield
        return
    torch.cuda.profiler.start()
    try:
        yield
    finally:
        torch.cuda.profiler.stop()


def _read(path: Path) -> Tree:
    handle = os.open(path, os.O_RDONLY)
    try:
        return read_bundle(handle)
    finally:
        os.close(handle)


def main(folder: str) -> int:
    """Run the job on the first visible GPU. Errors become a JSON object too, and exit code 1."""
    try:
        target = ProfileJob.from_json((Path(folder) / JOB).read_bytes()).target
        torch.cuda.init()
        reported: dict[str, Any] = {"launches": run(Path(folder), open_driver(target), TORCH_GPU_0)}
    except HipwrightError as error:
        reported = {"error": {**error.verdict().to_dict(), "evidence": protocol.plain(error.evidence)}}
    except Exception as error:
        reported = {
            "error": {"status": "unscorable", "fault": "service", "message": f"{type(error).__name__}: {error}"}
        }
    print(f"\n{MARK}{json.dumps(reported)}", flush=True)
    return 1 if "error" in reported else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
