"""hipwright's command line inside the tests' own process, on contained processes that stay warm between its runs.

A run of `hipwright` starts two or three processes that import torch: six processor seconds before any work. What a
command says, writes and returns is the same on processes that are there already. Tests of what becomes of processes
(signals, kills, what is left behind) start a real one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from hipwright import config
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool

# who starts contained processes: these name the class in their module, the others take it from the package
USERS = (
    "sandbox",
    "synth.run",
    "dataset.overlap",
    "api.ship.package",
    "api.profile",
    "evaluation.modelnew_stages",
)
HOST = ("torch", "hipwright.task.host.warm")  # as hipwright.machine asks for them
CANDIDATES = ("torch", "hipwright.verify.cpu.worker", "hipwright.verify.worker.warm")
_KEPT: dict[tuple[Any, ...], Zygote] = {}
_STACK = contextlib.ExitStack()


class Lent:
    """A zygote that stays when its borrower is done with it."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zygote, name)

    def __enter__(self) -> Lent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Its next borrower finds it warm."""


def zygote(preload: Sequence[str] = ("torch",), *, ro: Sequence[Path] = (), name: str = "zygote", **more: Any) -> Any:
    """In the place of Zygote(...): a warm one for what everybody asks for, else one that ends as any does."""
    cache = config.cache_dir()
    if not set(ro) <= {cache} or any(more.values()):
        return Zygote(preload, ro=ro, name=name, **more)
    key = (tuple(preload), tuple(ro))
    if key not in _KEPT:
        _KEPT[key] = Zygote(preload, ro=ro, name=name)
    return Lent(_KEPT[key])


@functools.cache
def compilers() -> CompilePool:
    """A pool of one warm NVRTC session."""
    return _STACK.enter_context(CompilePool(_STACK.enter_context(nvrtc.zygote()), 1))


def end() -> None:
    """At the session's end."""
    _STACK.close()
    compilers.cache_clear()
    while _KEPT:
        _KEPT.popitem()[1].close()


def host() -> Any:
    """The warm task host."""
    return zygote(HOST, name="task host")


def candidates() -> Any:
    """The warm candidate worker, which can read the builds in `builds()`."""
    return zygote(CANDIDATES, ro=(builds().folder,), name="candidates")


def builds() -> BuildCache:
    """The user's own build cache: for tests of what programs do, not of builds."""
    folder = config.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    return BuildCache(folder)


@contextlib.contextmanager
def zygotes() -> Iterator[None]:
    """Whatever starts contained processes within the block borrows warm ones."""
    with contextlib.ExitStack() as stack:
        for user in USERS:
            module = importlib.import_module(f"hipwright.{user}")
            if hasattr(module, "Zygote"):
                stack.enter_context(mock.patch.object(module, "Zygote", zygote))
        yield


def hipwright(folder: Path, *args: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """One command line in `folder`, as a process of its own would answer it; `env` is added to the environment."""
    from hipwright.cli.main import main

    words, out, err = [str(word) for word in args], io.StringIO(), io.StringIO()
    with (
        zygotes(),
        mock.patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "160", **(env or {})}),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
    return subprocess.CompletedProcess(["hipwright", *words], code, out.getvalue(), err.getvalue())
