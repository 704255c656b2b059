"""Many threads parse at once: no thread's tree breaks another's (python/cpython issue 106905)."""

from __future__ import annotations

import ast
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipwright import syntax

SOURCE = "\n".join(f"def f{i}(a, b):\n    return (a + b) * {i} - [x for x in (a, b)][0]" for i in range(200))


@pytest.fixture
def others_run_within_collections() -> Iterator[None]:
    def turn(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            time.sleep(0)  # gives the interpreter to another thread

    gc.callbacks.append(turn)
    yield
    gc.callbacks.remove(turn)


def in_threads(parse: Callable[[str], Any]) -> list[str]:
    """What four threads raised that parsed at once, twenty times each."""
    said: list[str] = []

    def work() -> None:
        for _ in range(20):
            try:
                parse(SOURCE)
            except SystemError as error:
                said.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def test_threads_parse_at_once(others_run_within_collections: None) -> None:
    assert in_threads(syntax.parse) == []


def test_what_a_thread_without_the_lock_breaks_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = ast.parse, [SystemError("AST constructor recursion depth mismatch (before=18, after=9)")] * 3

    def parse(*args: Any, **options: Any) -> ast.AST:
        if broken:
            raise broken.pop()
        return real(*args, **options)

    with monkeypatch.context() as changed:  # pytest tells of a failure with ast.parse
        changed.setattr(ast, "parse", parse)
        tree = syntax.parse("a = 1")
    assert ast.unparse(tree) == "a = 1" and not broken


@pytest.mark.parametrize(("text", "error"), [("def f(:", SyntaxError), ("a\0", (SyntaxError, ValueError))])
def test_text_that_is_no_python_is_told_as_ast_parse_tells_it(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        syntax.parse(text)


def test_an_expression() -> None:
    assert ast.dump(syntax.parse("a + 1", mode="eval")) == ast.dump(ast.parse("a + 1", mode="eval"))


def test_a_fault_that_stays_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> ast.Module:
        raise SystemError("broken")

    with monkeypatch.context() as changed, pytest.raises(SystemError, match="broken"):
        changed.setattr(ast, "parse", broken)
        syntax.parse("a")
