"""Trials of the runtime, each in a process of its own, as AMD's runtime ends the process of a faulting kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hipwright.api.contact.steps import StepFailed
from hipwright.device.amd import trials
from hipwright.device.amd.abort_messages import error_of_abort
from hipwright.sandbox import python_paths

LIMIT_S = 60.0
FAULT = trials.fault.__name__
HANG = "is the GPU hung? See `dmesg`, and reset it (rocm-smi --gpureset, or a restart)"


def run_trial(name: str, index: int, code: Path) -> dict[str, Any]:
    """The facts of a trial. Raises StepFailed with what the process printed."""
    done = _process(name, index, code)
    output = f"{done.stdout}\n{done.stderr}".strip()
    said = _object(done.stdout)
    if name == FAULT:
        return _fault(done, said, output)
    if said.get("ok"):
        return {**said["facts"], "output": done.stderr.strip()}
    ended = error_of_abort(done.stderr)
    message = said.get("error") or (ended.message if ended else f"the process ended with {done.returncode}")
    raise StepFailed(message, hint=said.get("hint", ""), output=output, facts=said.get("evidence", {}))


def _fault(done: subprocess.CompletedProcess[str], said: dict[str, Any], output: str) -> dict[str, Any]:
    """How the runtime tells a fault, if hipwright would know it for one of the program."""
    ended = error_of_abort(done.stderr)
    if said.get("status") == "out_of_bounds":
        return {"reported": "by an error code", "says": said["error"], "output": output}
    if ended is not None and done.returncode:
        status = getattr(ended, "status", "")
        return {"reported": "by ending the process", "says": ended.message, "status": status, "output": output}
    message = said.get("error") or f"the process ended with {done.returncode}, and no line that hipwright knows"
    raise StepFailed(message, hint=said.get("hint", ""), output=output)


def _process(name: str, index: int, code: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-B", "-m", "hipwright.device.amd.trials", name, str(index), str(code)]
    env = {**os.environ, "PYTHONPATH": ":".join(map(str, python_paths()))}
    try:
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"the trial {name} did not end within {LIMIT_S:.0f} s", hint=HANG) from None


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
