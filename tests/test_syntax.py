"""Many threads parse at once: no thread's tree breaks another's (python/cpython issue 106905)."""

from __future__ import annotations

import ast
import contextlib
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


def test_beside_threads_that_know_no_lock(others_run_within_collections: None) -> None:
    done = threading.Event()

    def stranger() -> None:
        while not done.is_set():
            with contextlib.suppress(SystemError):  # its own loss, on a Python that has the fault
                ast.parse(SOURCE)

    others = [threading.Thread(target=stranger) for _ in range(3)]
    for thread in others:
        thread.start()
    try:
        assert in_threads(syntax.parse) == []
    finally:
        done.set()
        for thread in others:
            thread.join()


@pytest.mark.parametrize(("text", "error"), [("def f(:", SyntaxError), ("a\0", (SyntaxError, ValueError))])
def test_text_that_is_no_python_is_told_as_ast_parse_tells_it(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        syntax.parse(text)


def test_an_expression() -> None:
    assert ast.dump(syntax.parse("a + 1", mode="eval")) == ast.dump(ast.parse("a + 1", mode="eval"))


def test_a_fault_that_stays_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> ast.Module:
        raise SystemError("broken")

    monkeypatch.setattr(ast, "parse", broken)
    with pytest.raises(SystemError, match="broken"):
        syntax.parse("a")
