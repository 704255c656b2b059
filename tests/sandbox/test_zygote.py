"""What a zygote needs to start, and what it says when that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import hipwright.sandbox.zygote as zygote_module
from hipwright.errors import InfrastructureError
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
