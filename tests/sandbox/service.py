"""The service that the session tests run: good, broken and hostile methods."""
# direct calls, as an attacker makes them
# ruff: noqa: PTH115, PTH123, PTH208, SIM105, SIM115

import ctypes
import mmap
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np

from hipwright.errors import CandidateError, ProgramError
from hipwright.sandbox import crash_page, lockdown
from hipwright.tensors import HostTensor


class OddFailure(ProgramError):
    """A class that the parent does not know."""


class Service:
    def __init__(self, init, bundle):
        if init.get("fail"):
            raise CandidateError("no", hint="try yes", status="hack", stage="lint", evidence={"n": 1})
        self.init, self.bundle = init, bundle

    def echo(self, header, bundle):
        return {**header, "init": self.init}, [bundle, self.bundle]

    def probe(self, header, bundle):
        """What this process can see and do."""
        return {
            "env": dict(os.environ),
            "uid": os.getuid(),
            "readable": [path for path in header["read"] if _opens(path)],
            "writable": [path for path in header["write"] if _opens(path, "w")],
            "pids": sorted(int(p) for p in os.listdir("/proc") if p.isdigit()),
            "network": _network(),
            "torch": "torch" in sys.modules,
            "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        }, None

    def program_error(self, header, bundle):
        raise ProgramError("bad plan", 7)

    def guard(self, header, bundle):
        raise OddFailure("x.dim() == 2", 3)

    def value_error(self, header, bundle):
        raise ValueError("plain")

    def sleep(self, header, bundle):
        time.sleep(header["s"])
        return {}, None

    def spin(self, header, bundle):
        while True:
            pass

    def work(self, header, bundle):
        """Takes so many seconds of the processor, however fast it is."""
        end = time.process_time() + header["s"]
        while time.process_time() < end:
            pass
        return {}, None

    def segfault(self, header, bundle):
        note = b'{"kernel": "k", "element": 12}'
        crash_page()[: len(note)] = note
        print("last words \x1b[31m", file=sys.stderr)
        ctypes.string_at(0)

    def leave(self, header, bundle):
        os._exit(header["code"])

    def hog(self, header, bundle):
        return {"n": len(np.ones(header["mb"] << 17))}, None

    def reply_of(self, header, bundle):
        return {}, HostTensor.of(np.zeros(header["mb"] << 17))

    def wide_reply(self, header, bundle):
        """Eight bytes that claim to be 8 PB."""
        one = HostTensor.of(np.zeros(1))
        return {}, HostTensor("float64", (1 << 50,), (0,), 0, one.storage)

    def shout(self, header, bundle):
        for _ in range(header["lines"]):
            print("x" * 100)
        return {}, None

    def raw_reply(self, header, bundle):
        """The caller's bytes in place of the reply."""
        _scribble(bytes.fromhex(header["hex"]))

    def mapped_reply(self, header, bundle):
        """A reply that can still be changed, or shrunk under the reader."""
        fd = _reply_fd()
        os.ftruncate(fd, 4096)
        self.kept = mmap.mmap(fd, 4096)
        return {}, None

    def hang_up(self, header, bundle):
        os.closerange(3, 64)
        time.sleep(60)

    def answer(self, header, bundle):
        """A wrong message on the socket."""
        socket.socket(fileno=os.dup(_channel_fd())).send(b"gotcha")
        time.sleep(60)

    def lock(self, header, bundle):
        lockdown(header.get("profile", "candidate"))
        return {}, None

    def attempts(self, header, bundle):
        """Name -> "done" or the error's name, for each act that a locked process must not do."""
        return {name: _outcome(_ATTEMPTS[name], header) for name in header["names"]}, None

    def attack(self, header, bundle):
        ctypes.CDLL(None).ptrace(16, header.get("pid", 1), 0, 0)
        return {}, None

    def fork_bomb(self, header, bundle):
        for _ in range(10_000):
            if os.fork() == 0:
                time.sleep(30)
        return {}, None

    def fill_tmp(self, header, bundle):
        """Writes until the disk is full; returns how many MiB fitted."""
        written = 0
        with open("/tmp/fill", "wb") as stream:
            while written < header["mb"]:
                written += stream.write(bytes(1 << 20)) >> 20
        return {"mb": written}, None

    def flood(self, header, bundle):
        """Writes to standard output without end, past Python's own wrapper."""
        line = b"x" * 65536
        deadline = time.monotonic() + header["s"]
        while time.monotonic() < deadline:
            for fd in (1, 2):
                try:
                    os.write(fd, line)
                except OSError:
                    pass
        return {}, None

    def bomb(self, header, bundle):
        """Every process forks again, in a session of its own: 2**doublings of them, a number that a test machine can
        bear.
        """
        for _ in range(header["doublings"]):
            try:
                if os.fork() == 0:
                    os.setsid()
            except OSError:
                pass
        time.sleep(600)

    def thread_bomb(self, header, bundle):
        import threading

        threading.stack_size(65536)
        for _ in range(4000):
            try:
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            except RuntimeError:
                pass
        time.sleep(600)

    def eat(self, header, bundle):
        """Touches memory until none is left."""
        held = []
        while True:
            held.append(bytearray(b"x" * (64 << 20)))

    def kill_around(self, header, bundle):
        """Sends SIGKILL to the parent, to everything, and to each process it can see; returns the result of each
        attempt.
        """
        targets = [os.getppid(), 1, -1, *(int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid())]
        return {"done": [pid for pid in targets if _outcome(lambda h, pid=pid: os.kill(pid, 9), {}) == "done"]}, None

    def writable_proc(self, header, bundle):
        """Files in /proc that can be opened for writing: in its own folder, and outside all processes' folders."""
        own = [name for name in os.listdir("/proc/self") if _opens(f"/proc/self/{name}", "r+")]
        others = []
        for folder, folders, files in os.walk("/proc"):
            if folder == "/proc":
                folders[:] = [name for name in folders if not name.isdigit()]
            others += [path for name in files if _opens(path := f"{folder}/{name}", "r+")]
        return {"own": own, "others": others}, None

    def leave_mark(self, header, bundle):
        """Whether an earlier candidate's file exists; writes one."""
        mark = Path("/tmp/mark")
        found = mark.exists()
        mark.write_text("x")
        return {"found": found}, None


def _opens(path, mode="r"):
    try:
        if Path(path).is_dir() and mode == "r":
            return bool(os.listdir(path))
        with open(path, mode):
            return True
    except OSError:
        return False


def _network():
    try:
        with socket.socket() as s:
            s.settimeout(2)
            s.connect(("1.1.1.1", 80))
    except OSError as error:
        return type(error).__name__
    return "connected"


def _outcome(attempt, header):
    try:
        return str(attempt(header) or "done")
    except Exception as error:
        return type(error).__name__


def _shared_anonymous(header):
    mmap.mmap(-1, 4096)


def _thread(header):
    import threading

    threading.Thread(target=int).start()


def _matmul(header):
    import torch

    a = torch.randn(64, 64)
    torch.nn.functional.conv2d(torch.randn(1, 3, 16, 16), torch.randn(4, 3, 3, 3)).sum().item()
    return float((a @ torch.linalg.inv(a) - torch.eye(64)).abs().max()) < 1


def _raise_limits(header):
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, 1 << 40))


def _read_memory(header):
    with open(f"/proc/{header['pid']}/mem", "rb") as stream:
        stream.seek(4096)


def _own_signal(header):
    import fcntl

    r, _w = os.pipe()
    fcntl.fcntl(r, fcntl.F_SETOWN, header["pid"])


def _exec(header):
    os.execv("/bin/true", ["true"])


def _compile(header):
    import subprocess

    Path("/tmp/a.c").write_text("int main(void) { return 7; }")
    subprocess.run(["cc", "/tmp/a.c", "-o", "/tmp/a.out"], check=True, timeout=60)
    return subprocess.run(["/tmp/a.out"], timeout=60).returncode == 7


def _new_namespace(header):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) < 0:  # clone(CLONE_NEWUSER)
        raise OSError(ctypes.get_errno(), "clone")


def _move_pages(header):
    if ctypes.CDLL(None, use_errno=True).syscall(279, 0, 0, 0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "move_pages")


_ATTEMPTS = {
    "compile": _compile,
    "namespace": _new_namespace,
    "move_pages": _move_pages,
    "write": lambda header: open("/tmp/x", "w").close(),
    "read": lambda header: open("/proc/cpuinfo").close(),
    "socket": lambda header: socket.socket().close(),
    "unix": lambda header: socket.socket(socket.AF_UNIX).close(),
    "netlink": lambda header: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "fork": lambda header: os._exit(0) if os.fork() == 0 else None,
    "exec": _exec,
    "kill": lambda header: os.kill(header["pid"], signal.SIGKILL),
    "memory": _read_memory,
    "environ": lambda header: open(f"/proc/{header['pid']}/environ").read(),
    "memfd": lambda header: os.close(os.memfd_create("x")),
    "thread": _thread,
    "shared": _shared_anonymous,
    "limits": _raise_limits,
    "setown": _own_signal,
    "matmul": _matmul,
}


def _channel_fd():
    for fd in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                return fd
        except OSError:
            continue
    raise LookupError


def _reply_fd():
    for fd in range(3, 64):
        try:
            if "reply" in os.readlink(f"/proc/self/fd/{fd}"):
                return fd
        except OSError:
            continue
    raise LookupError


def _scribble(data):
    fd = _reply_fd()
    os.ftruncate(fd, len(data))
    os.pwrite(fd, data, 0)
    socket.socket(fileno=os.dup(_channel_fd())).send(b"done")
    time.sleep(60)
