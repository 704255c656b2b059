"""What `hipwright model` takes: scripts, factories, configurations; and what of a folder a script's code may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.api.whole.source import model_source
from hipwright.errors import BadInput


def test_a_script_sees_the_modules_beside_it_and_nothing_else(tmp_path: Path) -> None:
    for name in ("net.py", "layers.py", "secret.txt", "parts/__init__.py", "data/weights.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = model_source(f"{tmp_path}/net.py:make")
    assert (found.kind, found.attribute, found.folders) == ("script", "make", (str(tmp_path),))
    assert {path.name for path in found.visible} == {"net.py", "layers.py", "parts"}
    more = model_source(f"{tmp_path}/net.py", read=[tmp_path / "data"])
    assert tmp_path / "data" in more.visible and more.attribute == ""


def test_a_module_of_the_working_directory_is_found_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("raise SystemExit('ran in the caller')")
    monkeypatch.chdir(tmp_path)
    found = model_source("mine.models:small")
    assert (found.kind, found.path, found.attribute) == ("factory", "mine.models", "small")
    assert found.folders == (str(tmp_path),) and found.visible == (tmp_path / "mine",)


def test_an_installed_package_needs_nothing_shown() -> None:
    found = model_source("torch.nn:Linear")
    assert found.visible == () and found.folders == ()


@pytest.mark.parametrize(
    "given", ["nothing", "no/such.py", "no_such_module_at_all:f", "config.json:f", "a.py:not a name", "x:"]
)
def test_what_is_no_model_is_refused(given: str) -> None:
    with pytest.raises(BadInput):
        model_source(given)
