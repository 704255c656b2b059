"""The parent's side of a zygote: starts it and opens sessions in it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hipwright.errors import InfrastructureError, WorkerError
from hipwright.sandbox import bwrap, protocol
from hipwright.sandbox.child import CRASH_PAGE_BYTES
from hipwright.sandbox.gpu import GpuAccess
from hipwright.sandbox.limits import Limits
from hipwright.sandbox.session import COUNT_PERIOD_S, Session
from hipwright.sandbox.zygote_process import STDERR_BYTES, LentProcess, ZygoteProcess, count_tasks
from hipwright.tensors import Tree

START_LIMIT_S = 180.0
TMP_MB = 1024
_FIXES = {"torch": "pip install 'hipwright[cpu]', or the torch build for your GPU"}
_BOOT = (
    "import json, sys; fd, preload, path = json.loads(sys.argv[1]); sys.path[:] += path; "
    "from hipwright.sandbox.child import zygote_main; zygote_main(fd, preload)"
)
_PACKAGES = ("site-packages", "dist-packages")
# USER: without an /etc/passwd torch takes the user's name from the environment, already for a meta tensor
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "USER": "sandbox",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
}
_FILES, _GPU_FILES = 256, 1024  # open files of a session; a GPU runtime holds a hundred by itself
_TASKS = 1000  # threads of a zygote and all its sessions; a CUDA process has about thirty
_TASKS_ROOM = 24  # the kernel's limit lies above ours, so that a fork bomb is reported as one


class Zygote:
    """A contained process that has `preload` imported and forks a session in milliseconds; an entry "module:function"
    is called too.

    It starts with the first session, and again if it dies. Sessions of one zygote share its /tmp and its process
    namespace, so processes that must be isolated from each other need a zygote each: candidates one, the task host
    (which holds expected outputs) another. `ro`: files and folders the sessions may read. gpu: the one GPU they may
    use, else none. tmp_mb: size of /tmp in MiB. threads: the value of OMP_NUM_THREADS. borrowers: how many it may be
    lent to (`lend`), which multiplies the size of /tmp and the tasks that the kernel allows. Methods may be called from
    any thread.
    """

    def __init__(
        self,
        preload: Sequence[str] = ("torch",),
        *,
        ro: Sequence[Path] = (),
        unsafe: bool = False,
        name: str = "zygote",
        gpu: GpuAccess | None = None,
        tmp_mb: int = TMP_MB,
        threads: int = 1,
        borrowers: int = 0,
    ) -> None:
        self.name = name
        self.unsafe = unsafe
        self.gpu = gpu
        self._shares = 1 + borrowers
        self._tmp_mb = tmp_mb * self._shares
        self._loan: socket.socket | None = None
        self.begun = False
        self._env = {**_ENVIRONMENT, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        if gpu is not None:
            self._env |= gpu.environment(contained=not unsafe)
        self._preload = tuple(preload)
        self._ro = tuple(ro)
        self._lock = threading.RLock()
        self._control: socket.socket | None = None
        self._generation = 0  # how often it was started
        self._closes = 0
        self._process: ZygoteProcess | LentProcess | None = None
        self._counted_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def start(self) -> threading.Thread:
        """Start in the background, to overlap with other work; a failure shows up at the first session. A zygote that
        was closed before the thread comes to it stays closed."""
        closes, self.begun = self._closes, True

        def begin() -> None:
            with contextlib.suppress(InfrastructureError), self._lock:
                if self._control is None and self._closes == closes:
                    self._start()

        thread = threading.Thread(target=begin, name=f"start {self.name}", daemon=True)
        thread.start()
        return thread

    def lend(self) -> socket.socket:
        """The control socket of a fork of this zygote, for the `borrow` of an equal one in another process. Returns at
        once: the fork answers when this zygote has started; where it does not, the socket is at its end.

        The fork shares this zygote's /tmp and process namespace, and ends with it.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def ask() -> None:
            with theirs, contextlib.suppress(InfrastructureError):
                for fd in self._ask({"op": "lend"}, [theirs.fileno()])[1]:
                    os.close(fd)

        threading.Thread(target=ask, name=f"lend {self.name}", daemon=True).start()
        return ours

    def borrow(self, control: socket.socket) -> None:
        """Uses a zygote that another process lent, the first time that it starts; where that has ended, and after its
        end, one of its own. control: of `lend`, closed here."""
        self._loan = control

    @property
    def watched(self) -> bool:
        """Whether its sessions may start processes, so that their tasks must be counted: RLIMIT_NPROC spares root."""
        return self.gpu is not None

    def flooded(self) -> int:
        """How many threads and processes it has where they are over the limit, else 0. Takes no lock, and counts once a
        period for all threads that wait for sessions."""
        if (now := time.monotonic()) - self._counted_at < COUNT_PERIOD_S / 2:
            return 0
        self._counted_at = now
        pid = process.pid if (process := self._process) is not None else None
        tasks = count_tasks(pid, _TASKS) if pid is not None else 0
        return tasks if tasks > _TASKS else 0

    def close(self) -> None:
        """Kill the zygote and every session in it."""
        with self._lock:
            self._closes += 1
            if self._loan is not None:
                self._loan.close()
                self._loan = None
            if self._control is not None:
                self._control.close()
                self._control = None
            if self._process is not None:
                self._process.end()
                self._process = None

    def session(
        self,
        service: str,
        init: dict[str, Any],
        bundle: Tree = None,
        *,
        limits: Limits = Limits(),  # noqa: B008
    ) -> Session:
        """A new process that serves Class(init, bundle), constructed within limits.wall_s.

        service: "module:Class", or "/path/file.py:Class" for a file under `ro`.

        Raises SandboxMissing, what the constructor raises, and the errors of `Session.call`.
        """
        session = self._spawn(limits)
        try:
            session.call(service, init, bundle, timeout_s=limits.wall_s)
        except BaseException:
            session.close()
            raise
        return session

    def _spawn(self, limits: Limits) -> Session:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stderr = protocol.memory_file("stderr", STDERR_BYTES)
        crash = protocol.memory_file("crash", CRASH_PAGE_BYTES)
        bounds = {
            "memory_mb": limits.memory_mb,
            "cpu_s": limits.cpu_s,
            "contained": not self.unsafe,
            "files": _GPU_FILES if self.gpu else _FILES,
        }
        try:
            with self._lock:
                reply, fds = self._ask({"op": "spawn", "limits": bounds}, [theirs.fileno(), stderr, crash])
                generation = self._generation
            if "error" in reply or len(fds) != 1:
                raise InfrastructureError(f"the {self.name} cannot start a session: {reply.get('error', 'no handle')}")
        except BaseException:
            ours.close()
            os.close(stderr)
            os.close(crash)
            raise
        finally:
            theirs.close()
        return Session(self, ours, (reply["pid"], generation), fds[0], stderr, crash, limits)

    def _ask(self, message: dict[str, Any], fds: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
        """Send a control message and return the zygote's reply and descriptors. A zygote that died is replaced once."""
        with self._lock:
            for attempt in range(2):
                if self._control is None:
                    self._start()
                assert self._control is not None
                try:
                    socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
                    answer, received, _, _ = socket.recv_fds(self._control, 4096, 1)
                except OSError:
                    answer, received = b"", []
                if answer:
                    reply: dict[str, Any] = json.loads(answer)
                    return reply, received
                log = self._process.log() if self._process else ""
                self.close()
                if attempt or message["op"] != "spawn":
                    break
        raise WorkerError(f"the {self.name} died: {log[-500:]}" if log else f"the {self.name} died")

    def _start(self) -> None:
        if self._loan is not None:
            loan, self._loan = self._loan, None
            if self._began_lent(loan):
                return
        for name in self._preload:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                raise InfrastructureError(
                    f"the {self.name} needs {name}, which is not installed", hint=_FIXES.get(name, "")
                )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = ZygoteProcess(
                self._command(theirs.fileno()), theirs.fileno(), self._env, self._most_tasks if self.watched else 0
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.settimeout(START_LIMIT_S)
        try:
            ready = ours.recv(64) == protocol.READY
        except OSError:
            ready = False
        if not ready:
            self._process.end()
            log, self._process = self._process.log(), None
            ours.close()
            raise InfrastructureError(f"the {self.name} does not start: {log[-2000:] or 'no message'}")
        self._control = ours
        self._generation += 1

    @property
    def _most_tasks(self) -> int:
        return (_TASKS + _TASKS_ROOM) * self._shares

    def _began_lent(self, loan: socket.socket) -> bool:
        """Whether the lent zygote has answered; it is this one's process then."""
        loan.settimeout(START_LIMIT_S)
        try:
            answer, fds, _, _ = socket.recv_fds(loan, 64, 1)
        except OSError:
            answer, fds = b"", []
        if answer != protocol.READY or len(fds) != 1:
            for fd in fds:
                os.close(fd)
            loan.close()
            return False
        self._process, self._control = LentProcess(fds[0]), loan
        self._generation += 1
        return True

    def _command(self, control_fd: int) -> list[str]:
        paths = python_paths()
        argument = json.dumps([control_fd, self._preload, [str(path) for path in paths]])
        python = os.path.realpath(sys.executable)
        argv = [python, "-I", "-S", "-B", "-c", _BOOT, argument]
        if self.unsafe:
            return argv
        visible = [*python_folders(), *self._ro, *(self.gpu.paths() if self.gpu else [])]
        devices = self.gpu.mounts() if self.gpu else []
        return bwrap.command(argv, ro=visible, env=self._env, devices=devices, tmp_mb=self._tmp_mb)

    def reap(self, pid: int, generation: int) -> int | None:
        """The exit code of a session that has ended (minus the signal), None if the zygote cannot tell.

        generation: the zygote's when the session began; later ones know other processes by the same numbers.
        """
        with self._lock:
            if self._control is None or generation != self._generation:
                return None
            try:
                code = self._ask({"op": "reap", "pid": pid}, [])[0]["code"]
            except WorkerError:
                return None
        return int(code)


def _source() -> Path:
    """The folder that holds the hipwright package."""
    return Path(__file__).absolute().parents[2]


def python_folders() -> list[Path]:
    """What a contained Python must be able to read: the interpreter, and the packages of `python_paths`."""
    # of a checkout only the package is shown; an installed package lies beside the others, which are needed
    source = _source() if _source().name in _PACKAGES else _source() / "hipwright"
    return [*(path for path in python_paths() if path != _source()), source, *_interpreter()]


def python_paths() -> list[Path]:
    """sys.path of a contained Python: hipwright and the installed packages, never the working directory."""
    paths = [_source()]
    paths += [Path(entry).absolute() for entry in sys.path if entry.endswith(_PACKAGES)]
    for name in ("torch", "numpy", "msgspec"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            paths.append(Path(spec.origin).absolute().parents[1])
    return [path for path in dict.fromkeys(paths) if path.is_dir()]


def _interpreter() -> list[Path]:
    """The folders of the interpreter and its standard library, by every path that leads to them."""
    base = Path(sys.base_prefix)
    return list(dict.fromkeys([base.absolute(), base.resolve(), Path(os.path.realpath(sys.executable)).parent]))
