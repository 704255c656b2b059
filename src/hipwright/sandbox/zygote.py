"""The outside: start a zygote, open sessions in it, call them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hipwright
from hipwright.errors import InfrastructureError, WorkerError
from hipwright.sandbox import bwrap, protocol
from hipwright.sandbox.child import CRASH_PAGE_BYTES
from hipwright.sandbox.failures import WorkerDied, WorkerTimeout
from hipwright.sandbox.limits import Limits
from hipwright.tensors import Tree

START_LIMIT_S = 180.0
_FIXES = {"torch": "pip install 'hipwright[cpu]', or the torch build for your GPU"}
STDERR_BYTES = 64 << 10
_BOOT = (
    "import json, sys; fd, preload, path = json.loads(sys.argv[1]); sys.path[:] += path; "
    "from hipwright.sandbox.child import zygote_main; zygote_main(fd, preload)"
)
_PACKAGES = ("site-packages", "dist-packages")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0",
                "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # fmt: skip


class Zygote:
    """A contained process that has `preload` imported and forks a session in milliseconds.

    It starts with the first session, and again if it dies. Sessions of one zygote share its /tmp and its process
    namespace, so what must not meet gets a zygote each: candidates one, the task host (which holds expected outputs)
    another. `ro`: files and folders the sessions may read. Methods may be called from any thread.
    """

    def __init__(
        self,
        preload: Sequence[str] = ("torch",),
        *,
        ro: Sequence[Path] = (),
        unsafe: bool = False,
        name: str = "zygote",
    ) -> None:
        self.name = name
        self.unsafe = unsafe
        self._preload = tuple(preload)
        self._ro = tuple(ro)
        self._lock = threading.RLock()
        self._control: socket.socket | None = None
        self._keeper: _Keeper | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def start(self) -> threading.Thread:
        """Start in the background, to overlap with other work; a failure shows up at the first session."""

        def begin() -> None:
            with contextlib.suppress(InfrastructureError), self._lock:
                if self._control is None:
                    self._start()

        thread = threading.Thread(target=begin, name=f"start {self.name}", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Kill the zygote and every session in it."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
            if self._keeper is not None:
                self._keeper.end()
                self._keeper = None

    def session(
        self,
        service: str,
        init: dict[str, Any],
        bundle: Tree = None,
        *,
        limits: Limits = Limits(),  # noqa: B008
    ) -> Session:
        """A new process that has made `service` by Class(init, bundle), within limits.wall_s.

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
        bounds = {"memory_mb": limits.memory_mb, "cpu_s": limits.cpu_s, "contained": not self.unsafe}
        try:
            said, fds = self._ask({"op": "spawn", "limits": bounds}, [theirs.fileno(), stderr, crash])
            if "error" in said or len(fds) != 1:
                raise InfrastructureError(f"the {self.name} cannot start a session: {said.get('error', 'no handle')}")
        except BaseException:
            ours.close()
            os.close(stderr)
            os.close(crash)
            raise
        finally:
            theirs.close()
        return Session(self, ours, said["pid"], fds[0], stderr, crash, limits)

    def _ask(self, message: dict[str, Any], fds: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
        """One question to the zygote. One that died since the last session is replaced, once."""
        with self._lock:
            for attempt in range(2):
                if self._control is None:
                    self._start()
                assert self._control is not None
                try:
                    socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
                    answer, got, _, _ = socket.recv_fds(self._control, 4096, 1)
                except OSError:
                    answer, got = b"", []
                if answer:
                    said: dict[str, Any] = json.loads(answer)
                    return said, got
                log = self._keeper.log() if self._keeper else ""
                self.close()
                if attempt or message["op"] != "spawn":
                    break
        raise WorkerError(f"the {self.name} died: {log[-500:]}" if log else f"the {self.name} died")

    def _start(self) -> None:
        for name in self._preload:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                raise InfrastructureError(
                    f"the {self.name} needs {name}, which is not installed", hint=_FIXES.get(name, "")
                )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._keeper = _Keeper(self._command(theirs.fileno()), theirs.fileno())
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
            self._keeper.end()
            log, self._keeper = self._keeper.log(), None
            ours.close()
            raise InfrastructureError(f"the {self.name} does not start: {log[-2000:] or 'no message'}")
        self._control = ours

    def _command(self, control_fd: int) -> list[str]:
        paths = _import_paths()
        argument = json.dumps([control_fd, self._preload, [str(path) for path in paths]])
        python = os.path.realpath(sys.executable)
        argv = [python, "-I", "-S", "-B", "-c", _BOOT, argument]
        if self.unsafe:
            return argv
        # a checkout shows its package alone; an installed package lies among the others, which are needed too
        source = _source() if _source().name in _PACKAGES else _source() / "hipwright"
        visible = [path for path in paths if path != _source()] + [source, *_python_home()]
        return bwrap.command(argv, ro=[*visible, *self._ro], env=_ENVIRONMENT)

    def _reap(self, pid: int) -> int | None:
        """The exit code of a session that has ended (minus the signal), None if the zygote cannot say."""
        with self._lock:
            if self._control is None:
                return None
            try:
                code = self._ask({"op": "reap", "pid": pid}, [])[0]["code"]
            except WorkerError:
                return None
        return int(code)


class _Keeper(threading.Thread):
    """The thread that starts the zygote and outlives it: PR_SET_PDEATHSIG fires when the starting *thread* ends."""

    def __init__(self, command: list[str], control_fd: int) -> None:
        super().__init__(name="hipwright-keeper", daemon=True)
        self._log = os.memfd_create("zygote-log")
        self._arguments = (command, control_fd)
        self._launched = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: OSError | None = None
        self.start()
        self._launched.wait()
        if self._problem is not None:
            raise InfrastructureError(f"cannot start {command[0]}: {self._problem}")

    def run(self) -> None:
        command, control_fd = self._arguments
        try:
            self._process = subprocess.Popen(
                command, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                pass_fds=(control_fd,), start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            self._problem = error
        finally:
            self._launched.set()
        if self._process is not None:
            self._process.wait()

    def end(self) -> None:
        """Kill it; its namespace dies with it."""
        if self._process is not None:
            self._process.kill()
            self.join()

    def log(self) -> str:
        """What it printed last."""
        return _printable(os.pread(self._log, STDERR_BYTES, 0))

    def __del__(self) -> None:
        os.close(self._log)


class Session:
    """One process that serves one object. Use as a context manager; not for several threads at once."""

    def __init__(
        self, zygote: Zygote, channel: socket.socket, pid: int, pidfd: int, stderr: int, crash: int, limits: Limits
    ) -> None:
        self._zygote = zygote
        self._channel = channel
        self._pid = pid
        self._pidfd = pidfd
        self._stderr = stderr
        self._crash = crash
        self._reply_limit = limits.memory_mb << 20
        self._alive = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    @property
    def alive(self) -> bool:
        """False once the process has ended or was killed."""
        return self._alive

    def call(
        self, method: str, header: dict[str, Any] | None = None, bundle: Tree = None, *, timeout_s: float
    ) -> tuple[dict[str, Any], Tree]:
        """method(header, bundle) in the session.

        Raises the service's own HipwrightError, RemoteFailure for its other exceptions, WorkerDied, WorkerTimeout, and
        WorkerError for a reply that is malformed or larger than the memory limit; after the last three it is dead.
        """
        if not self._alive:
            raise WorkerError("the session has ended")
        ask = protocol.request(method, header or {}, bundle)
        reply = protocol.memory_file("reply")
        try:
            self._exchange(method, ask, reply, timeout_s)
            return protocol.read_reply(reply, self._reply_limit)
        except BaseException as error:
            if type(error) is WorkerError or not isinstance(error, Exception):
                self.close()
            raise
        finally:
            os.close(ask)
            os.close(reply)

    def _exchange(self, method: str, ask: int, reply: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            socket.send_fds(self._channel, [protocol.CALL], [ask, reply])
        except OSError:
            raise self._died() from None
        watch = select.poll()
        watch.register(self._channel, select.POLLIN)
        watch.register(self._pidfd, select.POLLIN)
        if not watch.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self._kill()
            stderr, note = self._last_words()
            self.close()
            raise WorkerTimeout(method, timeout_s, stderr, note)
        try:
            done = self._channel.recv(64, socket.MSG_DONTWAIT)
        except OSError:
            done = b""
        if not done:
            raise self._died()
        if done != protocol.DONE:
            raise WorkerError("malformed reply from a worker: not an answer")

    def close(self) -> None:
        """Kill the process, wait for its end, release everything."""
        if not self._alive:
            return
        self._kill()
        self._zygote._reap(self._pid)
        self._release()

    def _died(self) -> WorkerDied:
        self._kill()  # it may only have closed its socket
        code = self._zygote._reap(self._pid)
        stderr, note = self._last_words()
        self._release()
        if code is None:
            return WorkerDied(None, None, stderr, note)
        return WorkerDied(-code if code < 0 else None, code if code >= 0 else None, stderr, note)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        gone = select.poll()
        gone.register(self._pidfd, select.POLLIN)
        gone.poll(30_000)

    def _last_words(self) -> tuple[str, Any]:
        """The tail of its stderr, and the JSON in its crash page."""
        text = _printable(os.pread(self._stderr, STDERR_BYTES, 0).rstrip(b"\0"))[-protocol.TEXT_LIMIT :]
        page = os.pread(self._crash, CRASH_PAGE_BYTES, 0).split(b"\0", 1)[0]
        try:
            note = json.loads(page) if page else None
        except (ValueError, RecursionError):
            note = None
        return text, note

    def _release(self) -> None:
        self._alive = False
        self._channel.close()
        for fd in (self._pidfd, self._stderr, self._crash):
            os.close(fd)


def _printable(raw: bytes) -> str:
    """Text without control characters: it ends up on terminals."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in raw.decode(errors="replace"))


def _source() -> Path:
    """The folder that holds the hipwright package."""
    return Path(hipwright.__file__).absolute().parents[1]


def _import_paths() -> list[Path]:
    """Where a contained Python finds hipwright and the installed packages; never the working directory."""
    paths = [_source()]
    paths += [Path(entry).absolute() for entry in sys.path if entry.endswith(_PACKAGES)]
    for name in ("torch", "numpy", "msgspec"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            paths.append(Path(spec.origin).absolute().parents[1])
    return [path for path in dict.fromkeys(paths) if path.is_dir()]


def _python_home() -> list[Path]:
    """The interpreter and its standard library, under the names it goes by."""
    base = Path(sys.base_prefix)
    return list(dict.fromkeys([base.absolute(), base.resolve(), Path(os.path.realpath(sys.executable)).parent]))
