"""Messages between a command and its link, one JSON object a line over a socket pair."""

from __future__ import annotations

import json
import select
import socket
import threading
from contextlib import suppress
from typing import Any


class Wire:
    """One end. Sending is safe from several threads; one thread receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message. Raises OSError where the other end is gone."""
        with self._sending:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message; None when there was none in time. Raises EOFError when the other end is gone."""
        while not self._lines:
            if not select.select([self._socket], [], [], timeout_s)[0]:
                return None
            try:
                data = self._socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            *whole, rest = (self._buffer + data).split(b"\n")
            self._buffer = bytearray(rest)
            self._lines += [bytes(line) for line in whole]
        found: dict[str, Any] = json.loads(self._lines.pop(0))
        return found

    def fileno(self) -> int:
        """The socket's number."""
        return self._socket.fileno()

    def shut(self) -> None:
        """Ends the talk: who receives at either end meets its end."""
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes this end."""
        self._socket.close()
