"""What a zygote needs to start, and the errors when it is missing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import hipwright.sandbox.zygote as zygote_module
from hipwright.errors import InfrastructureError, WorkerError
from hipwright.sandbox import Zygote


def test_an_installed_package_sees_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(zygote_module, "_source", lambda: folder)
    command = Zygote(())._command(3)
    assert str(folder) in command and str(folder / "hipwright") not in command


def test_a_missing_library_is_one_clear_line() -> None:
    with Zygote(("no_such_library",), name="worker") as zygote, pytest.raises(InfrastructureError) as caught:
        zygote.session("x:Y", {})
    assert caught.value.message == "the worker needs no_such_library, which is not installed"


def test_a_zygote_that_was_closed_before_its_thread_began_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a pool that is closed at once leaves a process and an open socket behind."""
    zygote = Zygote((), name="worker")
    monkeypatch.setattr(zygote, "_start", lambda: pytest.fail("it started"))
    with zygote._lock:  # the thread waits here, as on a busy machine
        thread = zygote.start()
        zygote.close()
    thread.join()
    assert zygote._control is None


def test_a_session_of_an_earlier_life_is_not_looked_for_in_the_next(tmp_path: Path) -> None:
    """Process numbers start again: the new zygote must not wait for the end of another session with the same number."""
    service = tmp_path / "service.py"
    service.write_text(
        "class Service:\n    def __init__(self, *_): pass\n    def echo(self, header, bundle):\n"
        "        return header, None\n"
    )
    with Zygote((), ro=[tmp_path], name="worker") as zygote:
        before = zygote.session(f"{service}:Service", {})
        zygote.close()
        now = zygote.session(f"{service}:Service", {})
        assert now._pid == before._pid, "the case that is to be told apart"
        begun = time.monotonic()
        with pytest.raises(WorkerError):
            before.call("echo", {}, timeout_s=20)
        assert time.monotonic() - begun < 10 and not before.alive
        assert now.call("echo", {"n": 1}, timeout_s=20)[0] == {"n": 1}
        now.close()
