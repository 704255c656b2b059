"""The server: one address of this machine, in a thread, until the command ends."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from hipwright.archive import Place
from hipwright.errors import BadInput, InfrastructureError
from hipwright.view.access import LOOPBACK
from hipwright.view.app import compile_templates, view_app
from hipwright.view.reader import ArchiveReader
from hipwright.view.results import ResultFolders
from hipwright.view.starting import Starter

START_S = 10.0


@dataclass(frozen=True)
class Served:
    """A server that listens. url: its address, token included; token: "" where none is needed."""

    url: str
    place: Place
    token: str


@contextmanager
def serving(
    place: Place,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    results: Sequence[Path] = (),
    *,
    start_below: Path | None = None,
) -> Iterator[Served]:
    """Serves the archive at `place` while the block runs; off the loopback a token is made where none is given.

    port 0: any that is free; results: folders below which there are results. BadInput: no archive, no such folder, or
    an address that cannot be used. start_below: searches of tasks below this folder may be started from the browser,
    on the loopback alone, and with a token there too, as other accounts of the machine reach it.
    """
    if start_below is not None and host not in LOOPBACK:
        raise BadInput(
            f"searches are started from this machine alone, not at {host}",
            hint="leave --host or --allow-start out; ssh -L 8420:127.0.0.1:8420 HOST reaches a server elsewhere",
        )
    if (host not in LOOPBACK or start_below is not None) and not token:
        token = secrets.token_urlsafe(24)
    folders = ResultFolders(results)
    reader = ArchiveReader(place)
    starter = Starter(place, start_below) if start_below is not None else None
    try:
        with _listening(host, port) as bound:
            server = uvicorn.Server(
                uvicorn.Config(
                    view_app(reader, folders, token=token, starter=starter, closing=lambda: server.should_exit),
                    log_level="error",
                    lifespan="off",
                    timeout_graceful_shutdown=1,
                    access_log=False,
                )
            )
            thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
            thread.start()
            try:
                compile_templates()
                _wait(server, thread)
                yield Served(_url(host, bound.getsockname()[1], token), place, token)
            finally:
                server.should_exit = True
                thread.join(timeout=5)
    finally:
        if starter is not None:
            starter.close()
        reader.close()


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    """Until the server answers."""
    deadline = time.monotonic() + START_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise InfrastructureError("the server of `hipwright view` did not start")
        time.sleep(0.01)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens at the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        hint = "--port 0 takes any that is free" if port else "--host 127.0.0.1 is this machine alone"
        raise BadInput(f"cannot listen at {host}:{port}: {error.strerror or error}", hint=hint) from error
    return bound


def _url(host: str, port: int, token: str) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")
