"""Runs a profiler with a folder that it may write and one GPU, in a sandbox or (see profiler.py) without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import hipwright
from hipwright.errors import InfrastructureError
from hipwright.sandbox import GpuAccess, bwrap

_INSIDE = Path("/build")
TEXT_LIMIT = 64 << 20  # bytes of a profiler's output that are read


@dataclass(frozen=True)
class Done:
    """A profiler's exit code and output."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class ProfilerSandbox:
    """A private folder and a GPU. tool: the profiler, whose installation is shown. limit_s: wall seconds of one run."""

    folder: Path
    tool: Path
    gpu: GpuAccess
    contained: bool
    limit_s: float

    @property
    def inside(self) -> Path:
        """The folder's path as the profiler sees it."""
        return _INSIDE if self.contained else self.folder

    def outside(self) -> ProfilerSandbox:
        """The same without a sandbox."""
        return replace(self, contained=False)

    def run(self, argv: Sequence[str]) -> Done:
        """Runs to the end. Raises SandboxMissing, and InfrastructureError after limit_s or when it does not start."""
        environment = self._environment()
        command = list(argv)
        if self.contained:
            shown = [path for path in self._shown() if path.exists()]
            command = bwrap.command(
                argv, ro=shown, env=environment, rw=self.folder, cwd=str(_INSIDE), devices=self.gpu.mounts()
            )
            environment = {}
        streams = [self.folder / "stdout", self.folder / "stderr"]
        with streams[0].open("wb") as out, streams[1].open("wb") as err:
            code = _run(command, self.folder, environment, out.fileno(), err.fileno(), self.limit_s)
        return Done(code, *(_text(stream) for stream in streams))

    def output(self, suffix: str) -> str:
        """The text of the newest file below the folder whose name ends with `suffix`, "" without one.

        Deletes all such files.
        """
        found = sorted(self.folder.rglob(f"*{suffix}"), key=lambda path: path.stat().st_mtime_ns)
        if not found:
            return ""
        text = _text(found[-1])
        for path in found:
            path.unlink()
        return text

    def _environment(self) -> dict[str, str]:
        settings = self.gpu.environment(contained=self.contained)
        settings["PATH"] = f"{self.tool.parent}:{settings['PATH']}"
        paths = ":".join(map(str, _import_paths()))
        return {**settings, "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONPATH": paths}

    def _shown(self) -> list[Path]:
        homes = [Path(sys.base_prefix), Path(sys.base_prefix).resolve(), Path(os.path.realpath(sys.executable)).parent]
        real = self.tool.resolve()
        return [*_import_paths(), *homes, real.parent, self.tool.parent, real.parents[1], *self.gpu.paths()]


def _import_paths() -> list[Path]:
    """hipwright's folder and the installed packages."""
    source = Path(hipwright.__file__).absolute().parents[1]
    packages = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    extra = [Path(entry).absolute() for entry in os.environ.get("PYTHONPATH", "").split(":") if entry]
    return list(dict.fromkeys([source, *packages, *(path for path in extra if path.is_dir())]))


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], out: int, err: int, limit_s: float
) -> int:
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except OSError as error:
        raise InfrastructureError(f"cannot start {command[0]}: {error}") from error
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"the profiler took longer than {limit_s:g} s", status="timeout") from None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
        process.wait()


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(TEXT_LIMIT).decode(errors="replace")
