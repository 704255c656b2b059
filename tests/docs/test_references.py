"""Files and modules that comments, docstrings and pages name exist."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "scripts", "docs", "examples")
DATA = (
    "src/hipwright/audit/corpus/",
    "benchmarks/arithmetic/",
    "benchmarks/hazards/",
    "benchmarks/kernels/",
    "benchmarks/operators/",
    "benchmarks/real/",
    "benchmarks/serving/",
    "tests/bad_input/",
)  # no modules
OTHER_PROJECTS = ("torch/",)
WRITTEN_BY_COMMANDS = (
    "program.py model_new.py verified.py gradient_task.py calls.jsonl rows.jsonl pairs.jsonl outcomes.jsonl "
    "skipped.jsonl bad.jsonl tasks.jsonl dropped.jsonl metrics.jsonl samples.jsonl tuned.jsonl"
)
FILES_OF_USERS = "3_Softmax.py level_1_problem_3_sample_0_kernel.py toy.py hipwright.toml"  # in examples
FILES_OF_NVIDIA = "cuda_fp16.h cuda_bf16.h"
FILES_OF_FORMATS = "submission.py eval.py utils.py build.toml main.cpp kernels.cu"  # of other tools
NOT_IN_THE_REPOSITORY = frozenset(
    f"{WRITTEN_BY_COMMANDS} {FILES_OF_USERS} {FILES_OF_NVIDIA} {FILES_OF_FORMATS}".split()
)
WALKTHROUGHS = re.compile(
    r"(?:engine/templates/cross|tests/engine/test_cross|policies/neighbours|targets/mi325x)\.py$|suites/elementwise\.toml$"
)
"""Files that a reader of CONTRIBUTING.md makes."""

_PATH = re.compile(r"(?<![\w/.{<$~-])(?:[\w-]+/)+[\w.-]+\.(?:py|md|h|hpp|c|cpp|cu|toml|sh|j2|jsonl(?:\.xz)?)\b")
_FILE = re.compile(r"`([\w-]+\.(?:py|md|h|hpp|c|cpp|cu|toml|sh|j2|jsonl))`")
_FOLDER = re.compile(r"`((?:[\w-]+/)+)`")
_MODULE = re.compile(r"(?<![\w./-])hipwright(?:\.(?!json|toml|html)\w+)+")


@cache
def tracked() -> tuple[str, ...]:
    """Every file of the repository."""
    listed = subprocess.run(("git", "ls-files", "-co", "--exclude-standard"), cwd=ROOT, capture_output=True, text=True)
    return tuple(listed.stdout.split())


@cache
def directories() -> frozenset[str]:
    """The names of all directories of source, tests, benchmarks and pages."""
    return frozenset(
        part
        for path in tracked()
        if path.startswith(FOLDERS) and not path.startswith(DATA)
        for part in PurePosixPath(path).parts[:-1]
    )


@cache
def endings() -> frozenset[str]:
    """Every path of the repository, relative to its root and to each folder above the file."""
    parts = (PurePosixPath(path).parts for path in tracked())
    return frozenset("/".join(one[start:]) for one in parts for start in range(len(one)))


@cache
def folders() -> frozenset[str]:
    """Every folder of the repository, relative to its root and to each folder above it."""
    parts = (PurePosixPath(path).parts[:-1] for path in tracked())
    return frozenset(
        "/".join(one[start:end]) for one in parts for start in range(len(one)) for end in range(start + 1, len(one) + 1)
    )


_STRING_OR_COMMENT = re.compile(
    r"(?P<comment>#[^\n]*)"
    r"|\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of a module's comments, in a tenth of the time that `tokenize` takes."""
    line, at = 1, 0
    for match in _STRING_OR_COMMENT.finditer(source):
        if match["comment"]:
            line, at = line + source.count("\n", at, match.start()), match.start()
            yield line, match.group()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node, at any depth; expressions, which are many more, are passed over."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, ())
        for one in inner if isinstance(inner, list) else ():
            yield one
            yield from statements(one)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def texts(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, text) of a page, or of a module's comments and docstrings."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return tuple(enumerate(source.split("\n"), 1))
    found = list(comments(source))
    for node in statements(parsed(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found += enumerate(node.value.value.split("\n"), node.lineno)
    return tuple(found)


def missing(line: str) -> Iterator[str]:
    """The files and modules that a line names and that do not exist. Names in capitals stand for any file."""
    if "/" not in line and "`" not in line and "hipwright." not in line:
        return
    for match in _PATH.finditer(line):
        named = match.group().removeprefix("./")
        ours = named.split("/")[0] in directories() and not named.startswith(OTHER_PROJECTS)
        ours = ours and not WALKTHROUGHS.search(named)
        if ours and named not in endings() and not any(part.isupper() for part in re.split(r"[/.]", named)):
            yield named
    for match in _FILE.finditer(line):
        named = match[1]
        placeholder = any(part.isupper() for part in named.split("."))
        if not placeholder and named not in endings() and named not in NOT_IN_THE_REPOSITORY:
            yield named
    for match in _FOLDER.finditer(line):
        if match[1].split("/")[0] in directories() and match[1].rstrip("/") not in folders():
            yield match[1]
    for match in _MODULE.finditer(line):
        if not known(match.group()):
            yield match.group()


@cache
def known(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        base = ROOT.joinpath("src", *parts[:length])
        file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
        if file.is_file():
            return length == len(parts) or bool(re.search(rf"\b{parts[length]}\b", file.read_text()))
    return False


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_named_exists(folder: str) -> None:
    found = [
        f"{path}:{line}: {named}"
        for path in tracked()
        if path.startswith(f"{folder}/") and path.endswith((".py", ".md")) and not path.startswith(DATA)
        for line, text in texts(ROOT / path)
        for named in missing(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_what_is_named_exists_at_the_root(page: str) -> None:
    assert [named for _, text in texts(ROOT / page) for named in missing(text)] == []


ODD = """a = '# none' + "it's # none" + r'\\' + \'\'\'"#
# none\'\'\'  # one, \'\'\'two
"""


@pytest.mark.parametrize("source", [ODD, Path(__file__).read_text(encoding="utf-8")], ids=["odd", "this"])
def test_comments_are_those_of_the_language(source: str) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    assert list(comments(source)) == [(one.start[0], one.string) for one in tokens if one.type == tokenize.COMMENT]


def test_what_does_not_exist_is_found() -> None:
    line = (
        "see `nowhere.py`, `src/nowhere/`, engine/nowhere.py and hipwright.engine.nowhere, not `engine/` or `NAME.py`"
    )
    assert list(missing(line)) == ["engine/nowhere.py", "nowhere.py", "src/nowhere/", "hipwright.engine.nowhere"]
