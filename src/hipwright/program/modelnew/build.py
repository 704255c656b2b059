"""Finds and builds the extensions of a ModelNew file. Runs in the parent process; torch-free.

`prepare` tries the lean headers first, and torch's own when the source does not compile against them; the checks say
which were used and how long it took. Everything that compiles or executes candidate text runs in the sandbox.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from hipwright.errors import CompileError, InfrastructureError
from hipwright.program.modelnew.check import imports, parse_model_new
from hipwright.program.modelnew.extensions import Extension, Unknown, key, static_extensions, uses_extensions
from hipwright.records import Build
from hipwright.sandbox import Limits, Zygote
from hipwright.targets import CUDA, TARGETS
from hipwright.tensors import Tree
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.extension import nvcc, torchlite

DISCOVERY = "hipwright.program.modelnew.run:Discovery"
_DISCOVERY_LIMITS = Limits(wall_s=60.0, cpu_s=60.0, memory_mb=8192)
MODULE = "hipwright_extension"


@dataclass(frozen=True)
class PreparedModelNew:
    """A file whose extensions are built. extensions: for `modelnew.run.load`; checks: for the verdict.

    profile: the confinement of its worker: "gpu", or "tools" for Triton, which starts ptxas and caches its results in
    the private /tmp (TRITON_CACHE_DIR).
    """

    kind: str
    extensions: tuple[dict[str, Any], ...] = ()
    checks: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def profile(self) -> Literal["gpu", "tools"]:
        """The seccomp profile (sandbox.lockdown) of the worker."""
        return "tools" if self.kind == "triton" else "gpu"


def kind_of(text: str) -> str:
    """ "triton", "extension" (load_inline or load) or "torch", by the imports and names of the file."""
    tree = parse_model_new(text)
    if uses_extensions(tree):
        return "extension"
    return "triton" if any(path.split(".")[0] == "triton" for path in imports(tree).values()) else "torch"


def check_target(text: str, target: str, reason: str = "") -> str:
    """The file's kind; raises InfrastructureError (fault "service") where the target cannot run such a file.

    reason: why it could not be converted to a program.
    """
    kind = kind_of(text)
    because = f": {reason}" if reason else ""
    if TARGETS.is_host(target) and kind == "triton":
        raise InfrastructureError(
            "Triton kernels run on GPUs only, so nothing was learnt of this one here",
            hint=f"evaluate it with --target {TARGETS.gpu_choices()} on a machine with a GPU",
        )
    if TARGETS.is_host(target) and kind == "extension" and any(e.cuda for e in _static(text)):
        raise InfrastructureError(
            "CUDA and HIP extensions run on GPUs only; on the cpu target this one would have to "
            f"be converted to a program, and it cannot be{because}",
            hint="evaluate it on a machine with a GPU",
        )
    runtime = TARGETS[target].runtime
    if kind == "extension" and runtime is not None and not runtime.builds_extensions:
        raise InfrastructureError(
            f"extensions are built with nvcc here; on {runtime.label} they run converted to a program only",
            hint="hipwright tries the conversion first and says why it failed",
        )
    return kind


def prepare(
    text: str,
    *,
    target: str,
    arch: str,
    cache: BuildCache,
    zygote: Zygote | None = None,
    init_inputs: Tree = (),
    ways: tuple[str, ...] = ("lean", "real"),
    unsafe: bool = False,
) -> PreparedModelNew:
    """Finds and builds the extensions of a file for a target on which programs run.

    zygote: where a file whose sources are not constants is executed to learn them; it must have hipwright's
    `program.modelnew.run` importable. Raises CompileError when an extension compiles neither way, and what
    `check_target` raises.
    """
    started = time.perf_counter()
    kind = check_target(text, target)
    if kind != "extension":
        return PreparedModelNew(kind, seconds=time.perf_counter() - started, checks={"modelnew": kind})
    wanted, found_by = _found(text, zygote, init_inputs)
    built = [_build(e, arch, cache, ways, unsafe) for e in {key(e): e for e in wanted}.values()]
    seconds = time.perf_counter() - started
    checks = {
        "modelnew": kind,
        "discovery": found_by,
        "extensions": [{k: b[k] for k in ("how", "seconds", "note") if k in b} for b in built],
        "build_seconds": round(seconds, 3),
    }
    return PreparedModelNew(kind, tuple(built), checks, seconds)


def _static(text: str) -> tuple[Extension, ...]:
    """The extensions with constant arguments; () where some are not constant."""
    try:
        return tuple(e for _, e in static_extensions(parse_model_new(text)))
    except Unknown:
        return ()


def _found(text: str, zygote: Zygote | None, init_inputs: Tree) -> tuple[list[Extension], str]:
    """The extensions, and how they were found: "static" or "executed"."""
    try:
        return [e for _, e in static_extensions(parse_model_new(text))], "static"
    except Unknown as error:
        if zygote is None:
            raise CompileError(f"the extension's sources cannot be told without running the file: {error}") from None
    bundle: dict[str, Any] = {"init_inputs": init_inputs}
    with zygote.session(DISCOVERY, {"text": text}, bundle, limits=_DISCOVERY_LIMITS) as session:
        header, _ = session.call("discover", {}, None, timeout_s=_DISCOVERY_LIMITS.wall_s)
    try:
        return [msgspec.convert(e, Extension) for e in header["extensions"]], "executed"
    except (msgspec.ValidationError, KeyError, TypeError):
        raise CompileError("the file's process gave no readable list of extensions") from None


def _build(e: Extension, arch: str, cache: BuildCache, ways: tuple[str, ...], unsafe: bool) -> dict[str, Any]:
    """Builds one extension in the first way that compiles. Raises CompileError with both logs."""
    logs: dict[str, str] = {}
    spent = 0.0
    for way in ways:
        made = _WAYS[way](e, arch, cache, unsafe)
        spent += made.seconds
        if made.ok:
            item = {
                "key": key(e),
                "how": way,
                "seconds": round(made.seconds, 3),
                "cached": made.cached,
                "so": str(cache.path(made.blob)),
                "module": MODULE,
            }
            return item | ({"note": f"lean: {_first_error(logs['lean'])}"} if "lean" in logs else {})
        logs[way] = made.log
    said = "\n".join(f"[{way}]\n{log}" for way, log in logs.items())
    raise CompileError(f"the extension does not compile: {_first_error(logs[ways[-1]])}", evidence={"log": said[:6000]})


def _lean(e: Extension, arch: str, cache: BuildCache, unsafe: bool) -> Build:
    units = torchlite.lean_units(e.cpp, e.cuda, e.functions)
    return nvcc.build(
        units,
        nvcc.lean_headers(),
        arch=arch,
        cflags=e.cflags,
        cuda_cflags=e.cuda_cflags,
        ldflags=e.ldflags,
        cache=cache,
        unsafe=unsafe,
    )


def _real(e: Extension, arch: str, cache: BuildCache, unsafe: bool) -> Build:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return Build(target=CUDA.name, ok=False, log="torch is not installed, so its headers are not there")
    units = torchlite.real_units(e.cpp, e.cuda, e.functions, bare=e.bare)
    return nvcc.build(
        units,
        nvcc.torch_headers(Path(spec.origin).parent, MODULE),
        arch=arch,
        cflags=e.cflags,
        cuda_cflags=e.cuda_cflags,
        ldflags=e.ldflags,
        cache=cache,
        unsafe=unsafe,
    )


_WAYS = {"lean": _lean, "real": _real}


def _first_error(log: str) -> str:
    """The first error line of a compiler's log."""
    lines = [line for line in log.splitlines() if re.search(r"\berror\b|undefined reference", line)]
    return (lines or log.splitlines() or ["no message"])[0][:300]


def arguments(prepared: PreparedModelNew, text: str, seed: int) -> Mapping[str, Any]:
    """The `init` of `modelnew.run.load`."""
    return {"text": text, "seed": seed, "extensions": list(prepared.extensions)}
