"""Runs one compiler or other tool in a sandbox."""

from __future__ import annotations

import math
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hipwright.disk import HINT as DISK_HINT
from hipwright.disk import is_full, naming
from hipwright.errors import InfrastructureError
from hipwright.sandbox import bwrap
from hipwright.sandbox.limits import TOOL_FILE_MB, Limits

TEXT_LIMIT = 1 << 20  # bytes kept of each of stdout and stderr
_PROCESSES = 256
_BUILD = "/build"
# f counts blocks of 512 bytes
_RLIMITS = 'ulimit -c 0; ulimit -t {cpu}; ulimit -d {data_kib}; ulimit -f {file_blocks}; {nproc} exec "$@"'


@dataclass(frozen=True)
class ToolResult:
    """The outcome of a tool. files: the requested outputs that are regular files within the size limit."""

    returncode: int
    stdout: str
    stderr: str
    files: dict[str, bytes]
    timed_out: bool


def run_tool(
    argv: Sequence[str],
    *,
    files: Mapping[str, bytes] | None = None,
    outputs: Sequence[str] = (),
    ro: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    unsafe: bool = False,
) -> ToolResult:
    """Run argv in a private folder that holds `files` and is its working directory; collect `outputs` from it.

    The tool sees the system's libraries and `ro`, no network, and no environment but PATH, HOME, TMPDIR and `env`. The
    returncode is 127 for a tool that cannot be started, as in a shell, and minus the signal's number for one that was
    killed; a tool over `wall_s` is killed with everything it started. Raises SandboxMissing without bwrap, unless
    unsafe.
    """
    file_mb = limits.file_mb or TOOL_FILE_MB
    with _scratch() as folder:
        for name, data in (files or {}).items():
            target = folder.joinpath(*_parts(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            with naming(target):
                target.write_bytes(data)
        command, variables = _command(argv, folder, ro, env or {}, limits, file_mb, unsafe)
        returncode, texts, timed_out = _run(command, folder, variables, limits.wall_s)
        if returncode and is_full(folder):  # no fault of what the tool was given
            raise InfrastructureError(f"{argv[0]} failed: no space left in {folder.parent}", hint=DISK_HINT)
        collected = {name: _collect(folder, name, file_mb << 20) for name in outputs}
    found = {name: data for name, data in collected.items() if data is not None}
    return ToolResult(returncode, texts[0], texts[1], found, timed_out)


def _command(
    argv: Sequence[str],
    folder: Path,
    ro: Sequence[Path],
    env: Mapping[str, str],
    limits: Limits,
    file_mb: int,
    unsafe: bool,
) -> tuple[list[str], dict[str, str]]:
    script = _RLIMITS.format(
        cpu=math.ceil(limits.cpu_s),
        data_kib=limits.memory_mb << 10,
        file_blocks=file_mb << 11,
        # counted per namespace when contained; otherwise the user's other processes would count too
        nproc="" if unsafe else f"ulimit -u {_PROCESSES} 2>/dev/null || ulimit -p {_PROCESSES};",
    )
    limited = ["/bin/sh", "-c", script, "sh", *argv]
    home = str(folder) if unsafe else _BUILD
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "TMPDIR": home, **env}
    if unsafe:
        return limited, variables
    return bwrap.command(limited, ro=ro, env=variables, rw=folder, cwd=_BUILD), {}


def _run(command: list[str], folder: Path, env: Mapping[str, str], wall_s: float) -> tuple[int, tuple[str, str], bool]:
    # memfds instead of pipes: nothing to drain while waiting, and RLIMIT_FSIZE bounds them
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    try:
        timed_out = False
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            process.wait(wall_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end(process)
        return _shell_code(process.returncode), (_text(out), _text(err)), timed_out
    except OSError as error:
        raise InfrastructureError(f"cannot start {command[0]}: {error}") from error
    finally:
        os.close(out)
        os.close(err)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group; under bwrap the rest of the namespace ends with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _shell_code(code: int) -> int:
    """The return code with a signal as a negative number; bwrap and sh report 128 + n."""
    return -(code - 128) if 128 < code < 128 + 65 else code


def _text(fd: int) -> str:
    size = os.fstat(fd).st_size
    text = os.pread(fd, TEXT_LIMIT, 0).decode(errors="replace")
    return text if size <= TEXT_LIMIT else f"{text}\n[{size - TEXT_LIMIT} more bytes left out]\n"


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"not a name inside the tool's folder: {name!r}")
    return path.parts


def _collect(folder: Path, name: str, limit: int) -> bytes | None:
    """The bytes of one output; None if it is missing, not a regular file, behind a symbolic link, or too large."""
    *parents, last = _parts(name)
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for part in parents:
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        opened.append(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        info = os.fstat(opened[-1])
        if not stat.S_ISREG(info.st_mode) or info.st_size > limit:
            return None
        with os.fdopen(opened.pop(), "rb") as stream:
            return stream.read(limit)
    except OSError:
        return None
    finally:
        for fd in opened:
            os.close(fd)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A private temporary folder, in memory where there is room; deleted on exit."""
    shm = Path("/dev/shm")
    in_memory = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 2 << 30
    folder = Path(tempfile.mkdtemp(prefix="hipwright-", dir=shm if in_memory else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
