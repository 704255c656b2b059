"""A PostgreSQL server of one's own: a temporary folder, a Unix socket, no TCP. Root runs it as the user postgres."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0
USER = "postgres"
_HBA = "local all locked scram-sha-256\nlocal all all trust\n"
"""Everyone who may reach the socket may log in; the role `locked` needs a password."""


def missing() -> str:
    """Why no server can be started here; "" where one can."""
    if _bin() is None:
        return "PostgreSQL is not installed: scripts/system-deps.sh postgresql"
    if os.getuid() == 0 and not _has_user():
        return f"root cannot run a PostgreSQL server, and there is no user {USER}"
    return ""


def _bin() -> Path | None:
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return folders[-1].parent if folders else None


def _has_user() -> bool:
    return any(entry.pw_name == USER for entry in pwd.getpwall())


class Server:
    """A server in `folder`, which is made where there is none. settings: of postgresql.conf."""

    def __init__(self, folder: Path, **settings: str) -> None:
        found = _bin()
        assert found is not None, missing()
        self.bin, self.folder, self.data = found, folder, folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        folder.mkdir(parents=True, exist_ok=True)
        if self.data.exists():
            return
        if os.getuid() == 0:
            shutil.chown(folder, USER, pwd.getpwnam(USER).pw_gid)
        words = ["-D", str(self.data), "-U", USER, "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([self.bin / "initdb", *words], check=True, capture_output=True, **self._user())
        (self.data / "pg_hba.conf").write_text(_HBA)

    def url(self, schema: str = "hipwright", *, user: str = USER, database: str = "postgres") -> str:
        """The URL of an archive on this server."""
        return f"postgresql://{user}@/{database}?host={self.folder}&schema={schema}"

    def start(self) -> None:
        """Starts the server and waits until it answers; one that was killed needs some tries."""
        deadline = time.monotonic() + START_S
        words = ["-D", str(self.data), "-k", str(self.folder), "-c", "listen_addresses=", *self._settings]
        ready = [self.bin / "pg_isready", "-q", "-h", str(self.folder), "-U", USER]
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                with (self.folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(
                        [self.bin / "postgres", *words],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        preexec_fn=_end_with_parent,
                        **self._user(),
                    )
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise TimeoutError((self.folder / "log").read_text()[-2000:])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops it. SIGINT: in order; SIGQUIT: at once, as a crash; SIGKILL: without any word."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_S)

    def psql(self, statement: str) -> str:
        """Runs a statement as the superuser."""
        words = ["-h", str(self.folder), "-U", USER, "-d", "postgres", "-qAtc", statement]
        done = subprocess.run([self.bin / "psql", *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def _user(self) -> dict[str, object]:
        if os.getuid() != 0:
            return {}
        entry = pwd.getpwnam(USER)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": "/"}


@contextmanager
def running(**settings: str) -> Iterator[Server]:
    """A server in a temporary folder while the block runs."""
    with tempfile.TemporaryDirectory(prefix="hw-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "server", **settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _end_with_parent() -> None:
    """Linux: the server stops in order when the process that started it ends in any way."""
    ctypes.CDLL(None).prctl(1, signal.SIGINT)
