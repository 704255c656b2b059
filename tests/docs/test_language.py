"""Pages, docstrings, comments and messages use the glossary's words (docs/glossary.md); nothing is misspelt."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_references import DATA, ROOT, parsed, texts, tracked

PLACES = ("src/hipwright/", "docs/", "benchmarks/", "scripts/", "examples/")
PROMPTS = ("src/hipwright/llm/knowledge/", "src/hipwright/agents/prompts/")
"""Texts for models: the words of the field that a search finds, CUDA's among them."""
OTHERS = (
    r"`[^`]*`",
    r'"[^"]*"',
    r"\]\([^)]*\)",
    r"workgroup processor",
    r"\bworkgroup:",
    "hipwright optimize",
    "optimize:",
)
_HEADING = "## Words that are not used"


@cache
def avoided() -> re.Pattern[str]:
    """The words of the glossary's table, at their forms' beginning."""
    table = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").partition(_HEADING)[2]
    cells = re.findall(r"(?m)^\| ([^|]+) \| [^|]+ \|$", table)[1:]
    words = [re.escape(word.strip()) for cell in cells for word in cell.split(",")]
    assert len(words) > 30
    forms = "|".join(re.sub(r"(ed|e|ion)$", "", word) if "z" in word else word for word in words)
    return re.compile(rf"(?<![\w.`/-])(?:{forms})(?:e?[sd]?|ing|ation|ion)(?![\w(=])", re.IGNORECASE)


def findings(text: str) -> list[str]:
    """The words that a line should not have; code, quotations and links are left out."""
    if not avoided().search(text):
        return []
    for other in OTHERS:
        text = re.sub(other, "", text)
    return [found.group() for found in avoided().finditer(text) if found.group() != "cpu target"]


def everything(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree in a third of the time that `ast.walk` takes."""
    left: list[Any] = [tree]
    while left:
        node = left.pop()
        yield node
        for value in vars(node).values():
            if isinstance(value, list):
                left += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST):
                left.append(value)


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of the texts of errors, hints and helps."""
    for node in everything(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            said: ast.AST = node.exc
        elif isinstance(node, ast.keyword) and node.arg in ("hint", "help", "message"):
            said = node.value
        else:
            continue
        for part in ast.walk(said):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.lineno, part.value


def spoken(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of what a reader of a page or of a module reads in English."""
    if path.suffix == ".md":
        text = (
            path.read_text(encoding="utf-8").partition(_HEADING)[0] if path.name == "glossary.md" else path.read_text()
        )
        without = re.sub(r"```.*?```", lambda code: "\n" * code.group().count("\n"), text, flags=re.DOTALL)
        yield from ((at, line) for at, line in enumerate(without.split("\n"), 1) if not line.startswith("    "))
        return
    yield from texts(path)
    yield from messages(parsed(path))


def test_the_words_are_the_glossarys() -> None:
    paths = [path for path in tracked() if path.startswith(PLACES) or ("/" not in path and path.endswith(".md"))]
    found = [
        f"{path}:{line}: {word}"
        for path in paths
        if path.endswith((".py", ".md")) and not path.startswith((*DATA, *PROMPTS))
        for line, text in spoken(ROOT / path)
        for word in findings(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text, words",
    [
        ("The workgroup is optimized, e.g. by colors.", ["workgroup", "optimized", "colors"]),
        ("Please utilize the CPU target.", ["Please", "utilize", "CPU target"]),
        ("initializing, normalization and behaviors, etc.", ["initializing", "normalization", "behaviors", "etc."]),
        ("the cpu target, `workgroup`, an optimizer, colour and a block", []),
    ],
)
def test_words_are_found(text: str, words: list[str]) -> None:
    assert findings(text) == words


def test_messages_are_read() -> None:
    tree = ast.parse('def f(x):\n    raise ValueError(f"no {x} here", hint="simply go")\n')
    assert [text for _, text in messages(tree)] == ["no ", " here", "simply go", "simply go"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("codespell", path=Path(sys.executable).parent) is None, reason="no codespell here")
def test_a_misspelling_is_found(tmp_path: Path) -> None:
    """`make check`, with which `make test` begins, looks at the whole repository."""
    argv = [str(Path(sys.executable).parent / "codespell")]
    (tmp_path / "page.md").write_text("the fastest\n".replace("he", "eh"))
    wrong = subprocess.run(
        [*argv, "--toml", str(ROOT / "pyproject.toml"), "page.md"], cwd=tmp_path, capture_output=True
    )
    assert wrong.returncode != 0
    makefile = (ROOT / "Makefile").read_text()
    assert "\ntest: check " in makefile and "\t$(BIN)/codespell\n" in makefile
