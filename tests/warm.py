"""Zygotes that tests share, and hipwright's command line run inside the tests' own process with them.

A command starts two or three processes that import torch, which takes six CPU seconds. Its output, files and exit code
do not depend on whether the processes run already. Tests of the processes themselves (signals, kills, leftovers) start
real ones.
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

# Modules whose name `Zygote` is replaced in `zygotes`. Modules that import it inside functions get the one of
# `hipwright.sandbox`.
ZYGOTE_MODULES = (
    "sandbox",
    "synth.workers",
    "dataset.overlap",
    "api.ship.package",
    "api.profile",
    "evaluation.modelnew_stages",
    "api.live.contained",
    "api.whole.handle",
)
# the modules that hipwright.machine preloads
HOST = ("torch", "hipwright.task.host.warm")
CANDIDATES = ("torch", "hipwright.verify.cpu.worker", "hipwright.verify.worker.warm")
_KEPT: dict[tuple[Any, ...], Zygote] = {}
_STACK = contextlib.ExitStack()


class SharedZygote:
    """A zygote that `close` and the end of a with-block leave running."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zygote, name)

    def __enter__(self) -> SharedZygote:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Does nothing: the zygote is shared."""


def zygote(preload: Sequence[str] = ("torch",), *, ro: Sequence[Path] = (), name: str = "zygote", **more: Any) -> Any:
    """In place of Zygote(...): a shared one for arguments that several tests use, else a new one."""
    cache = config.cache_dir()
    if not set(ro) <= {cache} or any(more.values()):
        return Zygote(preload, ro=ro, name=name, **more)
    key = (tuple(preload), tuple(ro))
    if key not in _KEPT:
        _KEPT[key] = Zygote(preload, ro=ro, name=name)
    return SharedZygote(_KEPT[key])


@functools.cache
def compilers() -> CompilePool:
    """A pool of one warm NVRTC session."""
    return _STACK.enter_context(CompilePool(_STACK.enter_context(nvrtc.zygote()), 1))


def end() -> None:
    """Ends the shared processes."""
    _STACK.close()
    compilers.cache_clear()
    while _KEPT:
        _KEPT.popitem()[1].close()


def host() -> Any:
    """The shared task host."""
    return zygote(HOST, name="task host")


def candidates() -> Any:
    """The shared candidate worker, which can read the builds in `builds()`."""
    return zygote(CANDIDATES, ro=(builds().folder,), name="candidates")


def builds() -> BuildCache:
    """The user's own build cache, for tests of programs and not of builds."""
    folder = config.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    return BuildCache(folder)


@contextlib.contextmanager
def zygotes() -> Iterator[None]:
    """A context in which the modules of ZYGOTE_MODULES use shared zygotes. Raises AttributeError for a stale entry."""
    # all are imported first: one that is imported under the patch of `hipwright.sandbox` would keep the replacement
    modules = [importlib.import_module(f"hipwright.{name}") for name in ZYGOTE_MODULES]
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(mock.patch.object(module, "Zygote", zygote))
        yield


def hipwright(folder: Path, *args: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs one command line in `folder`, in this process with shared zygotes; `env` is added to the environment."""
    from hipwright.cli.main import main

    arguments, out, err = [str(arg) for arg in args], io.StringIO(), io.StringIO()
    with (
        zygotes(),
        mock.patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "160", **(env or {})}),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(arguments)
    return subprocess.CompletedProcess(["hipwright", *arguments], code, out.getvalue(), err.getvalue())
