"""bubblewrap command lines: a process without files, network, environment or view of other processes."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hipwright.errors import InfrastructureError, SandboxMissing

_UNSAFE = ", or insist with --unsafe to run without containment"
_INSTALL = "install bubblewrap (apt-get install bubblewrap)"
_ALLOW = "let ordinary users make namespaces (in a container: its options in docs/sandbox.md, In a container)"
NEEDS_SANDBOX = "needs the sandbox"
"""What a check says that fails only for want of one."""

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER = ("/etc/ld.so.cache", "/etc/alternatives")


def available() -> tuple[bool, str]:
    """(whether a sandbox can be made here, the path of bwrap or the reason why not)."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return False, "bubblewrap (bwrap) is not installed"
    return _works(bwrap)


def sandbox_hint() -> str:
    """How to get a sandbox here: what to install, or what keeps bubblewrap from running."""
    return (_ALLOW if shutil.which("bwrap") else _INSTALL) + _UNSAFE


@functools.cache
def _works(bwrap: str) -> tuple[bool, str]:
    command = [bwrap, *_isolation(), *_system_mounts(), "--", "/bin/sh", "-c", "exit 0"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, env={}, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"bwrap does not run: {error}"
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[:300]
        return False, "bubblewrap does not run here: " + said.removeprefix("bwrap: ").partition(". See <")[0]
    return True, bwrap


def command(
    argv: Iterable[str],
    *,
    ro: Iterable[Path],
    env: Mapping[str, str],
    rw: Path | None = None,
    cwd: str = "/tmp",
    devices: Sequence[str] = (),
    tmp_mb: int = 0,
) -> list[str]:
    """argv wrapped in bwrap: `ro` paths visible at their own places, `rw` (if any) writable at `cwd`, nothing else.

    devices: further arguments of bwrap that show device nodes; with any, processes may write to their own folders in
    /proc. tmp_mb: size of /tmp; 0 leaves it to the kernel (half of the memory).

    Raises SandboxMissing where bwrap is missing or refused by the system.
    """
    works, why = available()
    if not works:
        raise SandboxMissing(f"no sandbox: {why}", hint=sandbox_hint())
    wrapped = [why, *_isolation(), *_system_mounts(devices, tmp_mb)]
    for path in _outermost(ro):
        wrapped += ["--ro-bind", str(path), str(path)]
    if rw is not None:
        wrapped += ["--bind", str(rw), cwd]
    for name, value in env.items():
        wrapped += ["--setenv", name, value]
    return [*wrapped, "--remount-ro", "/", "--chdir", cwd, "--", *argv]


def _isolation() -> list[str]:
    # uid 65534 inside and no capabilities, even if root starts it: root inside would own the files it can reach
    return [
        "--unshare-all",
        "--unshare-user",
        "--uid",
        "65534",
        "--gid",
        "65534",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--hostname",
        "sandbox",
    ]


def _system_mounts(devices: Sequence[str] = (), tmp_mb: int = 0) -> list[str]:
    mounts = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            mounts += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            mounts += ["--ro-bind", name, name]
    for name in _LOADER:
        mounts += ["--ro-bind-try", name, name]
    # /proc read-only: started by root, the process would own /proc/sys (bwrap covers that for other users only)
    proc = ["--proc", "/proc", *(_proc_covers() if devices else ["--remount-ro", "/proc"])]
    mounts += [*proc, "--dev", "/dev", *devices, "--remount-ro", "/dev"]
    return [*mounts, *(["--size", str(tmp_mb << 20)] if tmp_mb else []), "--tmpfs", "/tmp"]


def _proc_covers() -> list[str]:
    """Mounts that make /proc read-only but for the processes' own folders: CUDA does not start (error 304) unless a
    process may write to its own."""
    covered: list[str] = []
    for path in sorted(Path("/proc").iterdir()):
        if path.name.isdigit() or path.is_symlink():
            continue
        if path.is_dir() or path.stat().st_mode & 0o222:
            covered += ["--ro-bind", str(path), str(path)]
    return covered


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Absolute existing paths, without those that lie in another of them or in /usr."""
    kept: list[Path] = [Path("/usr")]
    for path in sorted({Path(p).absolute() for p in paths}, key=lambda p: len(p.parts)):
        if not path.exists():
            raise InfrastructureError(f"the sandbox cannot show {path}: it does not exist")
        if not any(path.is_relative_to(above) for above in kept):
            kept.append(path)
    return kept[1:]
