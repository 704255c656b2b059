"""Every public name has an example that runs: a doctest of its docstring, or a block of a page of docs/reference."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipwright
from hipwright import syntax
from tests import warm

REPO = Path(__file__).parents[2]
PAGES = sorted((REPO / "docs/reference").glob("*.md"))
WITH_EXAMPLES = [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8")]
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def found(path: str) -> Any:
    """What a dotted path names: a module, or an attribute of one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def public() -> dict[str, Any]:
    """By path: the names of the package, and what the reference shows; of a module, its own classes and functions."""
    names = {f"hipwright.{name}": getattr(hipwright, name) for name in hipwright.__all__}
    for page in PAGES:
        for path in SHOWN.findall(page.read_text(encoding="utf-8")):
            thing = found(path)
            inside = vars(thing).items() if inspect.ismodule(thing) else [("", thing)]
            for name, value in inside:
                own = getattr(value, "__module__", path) == path and (inspect.isclass(value) or callable(value))
                if not name or (own and not name.startswith("_")):
                    names[f"{path}.{name}".rstrip(".")] = value
    return names


def examples(page: Path) -> list[str]:
    """The blocks of a page that are doctests."""
    return re.findall(r"```python\n(>>>.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def used(blocks: list[str]) -> set[str]:
    """The names that the code of doctests reads."""
    code = "\n".join(one.source for block in blocks for one in doctest.DocTestParser().get_examples(block))
    return set(_read(syntax.parse(code)))


def _read(tree: Any) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


PUBLIC = public()
READ = used([block for page in PAGES for block in examples(page)])


def test_the_reference_shows_the_package() -> None:
    shown = {id(value) for path, value in PUBLIC.items() if not path.startswith("hipwright.") or path.count(".") > 1}
    assert [path for path, value in PUBLIC.items() if id(value) not in shown] == []
    assert len(PUBLIC) > 40


@pytest.mark.parametrize("path", sorted(PUBLIC))
def test_a_public_name_has_an_example(path: str) -> None:
    """tests/api/test_library.py runs the doctests of docstrings, this file those of pages."""
    doc = inspect.getdoc(PUBLIC[path]) or ""
    assert ">>>" in doc or path.rpartition(".")[2] in READ, "neither a doctest nor an example in docs/reference"


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=[page.stem for page in WITH_EXAMPLES])
def test_examples_of_the_reference(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    with warm.zygotes():
        for block in examples(page):
            test = doctest.DocTestParser().get_doctest(block, scope, page.name, None, 0)
            runner = doctest.DocTestRunner()
            runner.run(test, clear_globs=False)
            assert not runner.failures
            scope = test.globs
