"""A proxy before a PostgreSQL server's socket that cuts connections at a COMMIT: before it, or after it, unanswered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

NAME = ".s.PGSQL.5432"
Cut = Literal["before", "after"]
_FIELDS = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
_STARTING = b"E" + (4 + len(_FIELDS)).to_bytes(4, "big") + _FIELDS
"""The server's word to those who come too early (PostgreSQL's protocol, ErrorResponse)."""


class CuttingProxy:
    """Listens in `folder` for the server in `behind`.

    cut: what is done at the next COMMIT, once. refuse: new connections are closed at once. starting: so many new ones
    are answered as by a server that starts. cuts: how many were made.
    """

    def __init__(self, folder: Path, behind: Path) -> None:
        self.cut: Cut | None = None
        self.refuse = False
        self.starting = 0
        self.cuts = 0
        self._behind = behind / NAME
        self._open: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / NAME))
        (folder / NAME).chmod(0o777)
        self._listening.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stops listening and closes all connections."""
        self._listening.close()
        self.drop()

    def drop(self) -> None:
        """Closes all connections, as a broken network does."""
        for one in self._open:
            _end(one)
        self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.refuse or self.starting:
                    if self.starting:
                        self.starting -= 1
                        client.recv(1 << 16)
                        client.sendall(_STARTING)
                    _end(client)
                    continue
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(str(self._behind))
                except OSError:
                    _end(client)
                    continue
                self._open += [client, server]
                swallow = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, swallow), daemon=True).start()
                threading.Thread(target=self._answers, args=(client, server, swallow), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, swallow: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if b"COMMIT" in data and self.cut is not None:
                    how, self.cut = self.cut, None
                    self.cuts += 1
                    if how == "before":
                        break
                    swallow.set()
                server.sendall(data)
        if not swallow.is_set():
            _end(client)
            _end(server)

    def _answers(self, client: socket.socket, server: socket.socket, swallow: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if swallow.is_set():  # the server has committed; nobody hears of it
                    break
                client.sendall(data)
        _end(client)
        _end(server)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def cutting_proxy(folder: Path, behind: Path) -> Iterator[CuttingProxy]:
    """A proxy while the block runs."""
    folder.mkdir()
    proxy = CuttingProxy(folder, behind)
    try:
        yield proxy
    finally:
        proxy.close()
