"""The contained side: the zygote's loop, the session's loop, and the two calls of service code (lockdown, crash_page).

The zygote imports the modules that sessions need once, then forks one process per session on request. It never runs
anything else. Modules and services are named by the parent, so they are imported by name (importlib).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import io
import json
import math
import mmap
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from hipwright.sandbox import protocol, seccomp
from hipwright.tensors import Tree, read_bundle, write_bundle

CRASH_PAGE_BYTES = 4096
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PROCESSES = 512

_state: dict[str, Any] = {"crash_page": None, "locked": None, "given": None, "attached": None}


def crash_page() -> mmap.mmap:
    """4096 writable bytes shared with the parent: JSON left there becomes WorkerDied.note, however the process ends.

    Outside a session it is private memory without a reader.
    """
    if _state["crash_page"] is None:
        _state["crash_page"] = mmap.mmap(-1, CRASH_PAGE_BYTES)
    page: mmap.mmap = _state["crash_page"]
    return page


def lockdown(profile: seccomp.Profile = "candidate") -> None:
    """Give up for good every system call that `profile` does not need (hipwright.sandbox.seccomp). To be called once,
    just before untrusted code runs; a second call with the same profile does nothing.

    Raises SandboxMissing where the kernel has no filters, RuntimeError when asked to change profile.
    """
    if _state["locked"] is None:
        seccomp.install(profile)
        _state["locked"] = profile
    elif _state["locked"] != profile:
        raise RuntimeError(f"already locked down as {_state['locked']!r}")


def given_fd() -> int:
    """The file descriptor that came with the present JSON call, which closes it. ValueError where none came."""
    if _state["given"] is None:
        raise ValueError("the call came without a file descriptor")
    return int(_state["given"])


def attach_fd(fd: int) -> None:
    """Sends a file descriptor with the answer to the present JSON call, and closes it here."""
    _state["attached"] = fd


# ---------------------------------------------------------------- zygote


def zygote_main(control_fd: int, preload: Sequence[str]) -> None:
    """Import `preload` ("module", or "module:function" to call one of it), report readiness, and fork sessions until
    the parent closes the socket."""
    die_with_parent()
    for name in preload:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
        if name == "torch":
            sys.modules[name].set_num_threads(1)  # a thread pool would not survive the fork
    if "torch" in sys.modules:
        _warm_torch()
    gc.collect()
    gc.freeze()  # forks then share these pages
    control = socket.socket(fileno=control_fd)
    control.send(protocol.READY)
    _serve_control(control)


def _serve_control(control: socket.socket) -> None:
    """Answers a parent until it closes the socket. Never returns."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, 4096, 3)
        if not message:
            os._exit(0)  # the parent is gone: every session ends with this process
        _answer_control(control, json.loads(message), fds)


def _warm_torch() -> None:
    import torch

    torch.set_num_threads(1)  # a thread pool would not survive the fork
    importlib.import_module("hipwright.torchio")
    with contextlib.suppress(RuntimeError):
        torch.nn.functional.linear(torch.ones(4, 4), torch.ones(4, 4)).double().sum().item()


def _answer_control(control: socket.socket, message: dict[str, Any], fds: list[int]) -> None:
    reply: dict[str, Any]
    if message["op"] == "reap":
        _, status = os.waitpid(message["pid"], 0)
        reply = {"code": os.waitstatus_to_exitcode(status)}
        control.send(json.dumps(reply).encode())
        return
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        control.send(json.dumps({"error": str(error)}).encode())
    else:
        if pid == 0:
            control.close()
            if message["op"] == "lend":
                _lent_main(fds[0], parent)
            _session_main(fds, message["limits"], parent)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(control, [json.dumps({"pid": pid}).encode()], [pidfd])
        os.close(pidfd)
    for fd in fds:
        os.close(fd)


def _lent_main(control_fd: int, zygote: int) -> None:
    """A zygote of its own, with all that this one imported: it answers whoever holds the socket's other end, which gets
    a handle of the process, and ends when that is closed or the zygote that lent it ends. Never returns."""
    die_with_parent()
    if os.getppid() != zygote:
        os._exit(0)
    control = socket.socket(fileno=control_fd)
    own = os.pidfd_open(os.getpid())
    with contextlib.suppress(OSError):  # the borrower has gone
        socket.send_fds(control, [protocol.READY], [own])
    os.close(own)
    _serve_control(control)


# ---------------------------------------------------------------- session


def _session_main(fds: list[int], limits: dict[str, int | float], zygote: int) -> None:
    """Redirect output, set limits, serve. Never returns."""
    try:
        die_with_parent()
        if os.getppid() != zygote:
            os._exit(0)
        channel_fd, errors_fd, crash_fd = fds
        os.dup2(errors_fd, 1)
        os.dup2(errors_fd, 2)
        _state["crash_page"] = mmap.mmap(crash_fd, CRASH_PAGE_BYTES)
        os.close(errors_fd)
        os.close(crash_fd)
        sys.stdout = sys.stderr = io.TextIOWrapper(
            _BoundedStream(), encoding="utf-8", errors="replace", write_through=True
        )
        _limit(limits)
        _renew_thread_pool()
        _serve(socket.socket(fileno=channel_fd))
    except BaseException as error:
        with contextlib.suppress(BaseException):
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(70)
    os._exit(0)


def _renew_thread_pool() -> None:
    """Lets torch replace the thread pool that the fork left unusable while this is the only thread.

    torch replaces it at the next use. Where two threads come to that at once, as autograd's do in a first backward, one
    of them finds no pool, and the process aborts: "pool INTERNAL ASSERT FAILED ... Invalid thread pool!".
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())


class _BoundedStream(io.RawIOBase):
    """File descriptor 2, a memfd of fixed size; text that does not fit is dropped, so that no print fails."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            os.write(2, data)
        return len(data)


def _limit(limits: dict[str, int | float]) -> None:
    memory, cpu = int(limits["memory_mb"]) << 20, math.ceil(limits["cpu_s"])
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_FSIZE: memory,
        resource.RLIMIT_NOFILE: int(limits["files"]),
    }
    if limits["contained"]:  # counted per namespace; without one the user's other processes would count too
        wanted[resource.RLIMIT_NPROC] = _PROCESSES
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _serve(channel: socket.socket) -> None:
    service: Any = None
    while True:
        message, fds, _, _ = socket.recv_fds(channel, protocol.MESSAGE_BYTES, 2)
        if message.startswith(protocol.JSON) and service is not None and len(fds) < 2:
            _state["given"] = fds[0] if fds else None
            alive = _serve_json(channel, service, message)
            for fd in fds:
                os.close(fd)
            if not alive:
                return
            continue
        if message != protocol.CALL or len(fds) != 2:
            return
        request_fd, reply_fd = fds
        try:
            call = read_bundle(request_fd)
            if service is None:
                service = _construct(call["method"], call["header"], call["bundle"])
                reply: Tree = {"header": {}, "bundle": None}
            else:
                header, bundle = getattr(service, call["method"])(call["header"], call["bundle"])
                reply = {"header": header, "bundle": bundle}
            write_bundle(reply_fd, reply)
        except Exception as error:
            write_bundle(reply_fd, protocol.describe(error))
        call = header = bundle = reply = None
        os.close(request_fd)
        os.close(reply_fd)
        channel.send(protocol.DONE)


def _serve_json(channel: socket.socket, service: Any, message: bytes) -> bool:
    """Answer a JSON call; False when the parent has closed the socket."""
    try:
        method, given = json.loads(message.removeprefix(protocol.JSON))
        header, bundle = getattr(service, method)(given, None)
        reply: Tree = {"header": header, "bundle": bundle}
        answer = protocol.JSON + json.dumps(header).encode()
        if bundle is None and len(answer) <= protocol.MESSAGE_BYTES:
            _send_answer(channel, answer)
            return True
    except Exception as error:
        reply = protocol.describe(error)
    if (fd := _state["attached"]) is not None:  # goes with no other answer
        _state["attached"] = None
        os.close(fd)
    channel.send(protocol.LARGE)
    _, fds, _, _ = socket.recv_fds(channel, 64, 1)
    if len(fds) != 1:
        return False
    write_bundle(fds[0], reply)
    os.close(fds[0])
    channel.send(protocol.DONE)
    return True


def _send_answer(channel: socket.socket, answer: bytes) -> None:
    """Sends an answer, with the file descriptor that the service attached."""
    fd, _state["attached"] = _state["attached"], None
    if fd is None:
        channel.send(answer)
        return
    socket.send_fds(channel, [answer], [fd])
    os.close(fd)


def _construct(service: str, init: dict[str, Any], bundle: Tree) -> Any:
    """Class(init, bundle) of "module:Class" or "/path/file.py:Class"."""
    source, _, name = service.rpartition(":")
    if not source.endswith(".py"):
        return getattr(importlib.import_module(source), name)(init, bundle)
    spec = importlib.util.spec_from_file_location("service", source)
    if spec is None or spec.loader is None:
        raise ImportError(f"not a Python file: {source}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)(init, bundle)


def die_with_parent() -> None:
    """Ends this process with the one that started it, and keeps its memory from being read through /proc."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no other process may read this memory through /proc
