"""The examples of the page on the library, of the README, of the tutorial and of the notebook give what they show."""

from __future__ import annotations

import doctest
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from tests import warm

REPO = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
NOTEBOOKS = sorted((REPO / "examples").rglob("*.ipynb"))


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    monkeypatch.chdir(tmp_path)
    with warm.zygotes():
        yield


@pytest.fixture
def quicker(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A text's searches with one evaluation each, as its lines are tested and not its figures; whole under --all."""
    return str if request.config.getoption("--all") else partial(re.sub, r"\bbudget=\d+", "budget=1")


def blocks(page: str, heading: str = "") -> list[str]:
    text = (REPO / page).read_text(encoding="utf-8")
    return BLOCK.findall(text[text.index(heading) :])


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/library.md", "docs/torch-compile.md"])
def test_examples_of_the_page(page: str) -> None:
    torch._dynamo.reset()
    shown = [block for block in blocks(page) if block.startswith(">>>")]
    assert shown
    scope: dict[str, Any] = {}
    for block in shown:
        test = doctest.DocTestParser().get_doctest(block, scope, page, None, 0)
        runner = doctest.DocTestRunner()
        runner.run(test, clear_globs=False)
        assert not runner.failures
        scope = test.globs


@pytest.mark.slow
def test_the_tutorial(quicker: Callable[[str], str]) -> None:
    """The Python blocks of the page, in order, as one program."""
    scope: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for block in blocks("docs/tutorials/pytorch.md"):
            exec(quicker(block), scope)
    assert scope["result"].passed and scope["again"] is not scope["model"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page, heading", [("README.md", "## From Python"), ("docs/library.md", "# A module in memory")]
)
def test_first_lines(page: str, heading: str, quicker: Callable[[str], str]) -> None:
    scope: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        exec(quicker(blocks(page, heading)[0]), scope)
    assert scope["result"].passed and scope["y"].shape == (16, 128)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebooks_run_in_a_kernel_from_top_to_bottom(
    path: Path, tmp_path: Path, quicker: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Jupyter runs them: cells raise nothing, and the last value of one is shown."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs for cell in code), "outputs are not kept in the repository"
    for cell in code:
        cell.source = quicker(cell.source)
    NotebookClient(book, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    shown = {output.output_type for cell in code for output in cell.outputs}
    assert shown == {"stream", "execute_result"}, "no cell raises, and none warns"
    assert not any(output.get("name") == "stderr" for cell in code for output in cell.outputs)
