"""A command of hipwright as a child process: its progress as stages, its JSON object as the result."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput, CandidateError, HipwrightError, InfrastructureError, TaskError
from hipwright.events import Listener

_STAGE = re.compile(r"\[\s*[\d.]+s[^\]]*\]\s*(?P<text>.+)")
END_S = 3.0
"""How long a command that is told to end may take to keep what it has."""


class ChildCommand:
    """Runs one command at a time. `abort` may be called from any thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._aborted = False

    def begin(self) -> None:
        """Clears an abort of the call before."""
        self._aborted = False

    def run(self, words: Sequence[str], home: Path | str, listener: Listener) -> dict[str, Any]:
        """The JSON object of `hipwright WORDS --json`. home: the archive's folder or URL.

        Raises the command's own error, and InfrastructureError after an abort.
        """
        command = [sys.executable, "-m", "hipwright", *words, "--json"]
        with self._lock:
            if self._aborted:
                raise InfrastructureError("the call was cancelled")
            self._process = process = subprocess.Popen(
                command,
                env={**os.environ, "HIPWRIGHT_HOME": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        try:
            reader = threading.Thread(target=_tell, args=(process, listener), daemon=True)
            reader.start()
            assert process.stdout is not None
            text, code = process.stdout.read(), process.wait()
            process.stdout.close()
            reader.join(END_S)
        finally:
            self._process = None
        if self._aborted:
            raise InfrastructureError("the call was cancelled")
        return _object(text, code)

    def abort(self) -> None:
        """Ends the command: with a signal that lets it keep what it has, then at once."""
        with self._lock:
            self._aborted, process = True, self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Has the command end when the server does, also by SIGKILL: when the thread that waits for the command ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _tell(process: subprocess.Popen[str], listener: Listener) -> None:
    """Passes the lines of progress on."""
    assert process.stderr is not None
    with process.stderr as lines:
        for line in lines:
            if found := _STAGE.match(line):
                listener("stage", {"text": found["text"].strip()})


def _object(text: str, code: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise InfrastructureError(f"the command ended with exit code {code} and no result") from None
    if "error" not in found:
        return dict(found)
    of_code = {2: BadInput, 3: InfrastructureError}.get(found.get("exit_code", code), HipwrightError)
    owner = {"task": TaskError, "candidate": CandidateError}.get(found.get("fault"), of_code)
    raise owner(found["error"], hint=found.get("hint", ""))
