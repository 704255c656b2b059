"""Compiles HIP source to an AMD code object and its assembly without ROCm: compile, assemble, link, read resources.

A wrong source raises no exception: it returns Build(ok=False) with clang's messages, whose line numbers are those of
the source. The three steps run in one sandboxed process that can read only the compiler, hipwright's headers and AMD's
device library.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hipwright.errors import BadInput, ToolchainError
from hipwright.records import Build, content_key
from hipwright.sandbox import Limits, ToolResult, run_tool
from hipwright.targets import OFFLINE, Architecture
from hipwright.toolchain import clang, pch
from hipwright.toolchain.amd import codeobject, isa, ocml, rocm_paths
from hipwright.toolchain.cache import BuildCache

SOURCE = "kernel.hip"
LOG_LIMIT = 6000  # characters
LIMITS = Limits(wall_s=60.0, cpu_s=60.0, memory_mb=4096)

FLAGS = (
    "-x",
    "hip",
    "--cuda-device-only",
    "-nogpuinc",
    "-nogpulib",
    "-nostdinc",
    "-nostdinc++",
    "-std=c++17",
    "-O3",
    "-fno-exceptions",
    "-ferror-limit=10",
    "-fno-color-diagnostics",
    "-fuse-cuid=none",
)
WARNINGS = (
    "-Wall",
    "-Wno-unused-variable",
    "-Wno-unused-but-set-variable",
    "-Wno-unused-function",
    "-Wno-sign-compare",
)
# $0 is `sh`, $1 the compiler, $2 the target, the rest the front end's arguments; oclc.ll is there with ocml only
_SCRIPT = (
    "zig=$1; arch=$2; shift 2; "
    "if [ -f oclc.ll ]; then "
    '"$zig" clang -target amdgcn-amd-amdhsa -nogpulib -x ir -c -emit-llvm oclc.ll -o oclc.bc || exit 10; fi; '
    '"$zig" clang "$@" || exit 11; '
    '"$zig" clang -target amdgcn-amd-amdhsa -mcpu="$arch" -c -x assembler kernel.s -o kernel.o || exit 12; '
    '"$zig" ld.lld -shared --no-undefined kernel.o -o kernel.hsaco || exit 13'
)
_STEPS = {10: "the device library", 11: "clang", 12: "the assembler", 13: "the linker"}
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import|embed)[ \t]*[<\"]([^>\"\n]*)", re.MULTILINE)
_OUTWARDS = re.compile(r"[<\"]\s*+[/~]")  # the start of a refused name, unless it contains ".." or a comment
_OCML_TROUBLE = re.compile(r"__ocml_|__ockl_|__oclc_|oclc\.|\.bc\b|[Bb]itcode")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)


def compiler_id() -> str:
    """The versions of the compiler, the headers and the device math as one line, for cache keys."""
    bitcode = ocml.find()
    device_math = f"ocml {bitcode.hash}" if bitcode else "own device math"
    return f"{clang.find().id}, headers {clang.headers_id()}, {device_math}"


@functools.cache
def code_object_version() -> int:
    """The version of the code objects' format: 5, which every loader of ROCm 6 and 7 takes; 4 where ROCm 5 is found.

    clang's own default is 6, which loaders before ROCm 6.3 refuse; LLVM made 5 its default for ROCm 6.
    """
    found = rocm_paths.version()
    return 4 if found and found < (6, 0) else 5


def build(source: str, target: str, defines: Mapping[str, int], *, cache: BuildCache, unsafe: bool = False) -> Build:
    """Compile HIP source for one AMD target. `blob` is the code object, `isa_blob` the assembly.

    A wrong source returns Build(ok=False). Raises ToolchainError without a compiler, SandboxMissing where it cannot be
    contained (and not `unsafe`), BadInput for a target that is not offline.
    """
    if target not in OFFLINE:
        raise BadInput(f"unknown AMD target {target!r}", hint=f"targets: {', '.join(OFFLINE)}")
    knobs = tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))
    architecture = OFFLINE[target]
    isa_name = () if architecture.isa == target else (architecture.isa,)
    flags = "\0".join((*FLAGS, code_object_format(), *WARNINGS, *knobs, _SCRIPT, *isa_name))
    key = content_key("amdgpu", source, target, flags, compiler_id())
    if known := cache.load(key):
        return known
    started = time.perf_counter()
    built, reproducible = _build(source, architecture, knobs, cache, unsafe)
    built = msgspec.structs.replace(built, seconds=time.perf_counter() - started)
    if reproducible:
        cache.store(key, built)
    return built


def code_object_format() -> str:
    """clang's option for `code_object_version`."""
    return f"-mcode-object-version={code_object_version()}"


def _build(
    source: str, architecture: Architecture, knobs: tuple[str, ...], cache: BuildCache, unsafe: bool
) -> tuple[Build, bool]:
    """(the build, whether the same source would give it again: not after a timeout)."""
    if refused := include_outside(source):
        return Build(target=architecture.name, ok=False, log=refused), True
    bitcode = ocml.find()
    result = _compile(source, architecture, knobs, bitcode, cache, unsafe)
    if bitcode and result.returncode and _OCML_TROUBLE.search(result.stderr):
        bitcode = None  # the source is not at fault for a library that this compiler cannot use
        result = _compile(source, architecture, knobs, bitcode, cache, unsafe)
    if result.returncode and pch.REFUSED.search(result.stderr):
        result = _compile(source, architecture, knobs, bitcode, None, unsafe)
    if result.returncode or result.timed_out:
        log, reproducible = _failure(result)
        return Build(target=architecture.name, ok=False, log=log), reproducible
    asm, code = result.files["kernel.s"].decode(), result.files["kernel.hsaco"]
    if codeobject.machine(code) != architecture.elf_machine:
        raise ToolchainError(f"the compiler made code for another GPU than {architecture.name}", hint=clang.FIX)
    return Build(
        target=architecture.name,
        ok=True,
        blob=cache.put(code),
        isa_blob=cache.put(asm.encode()),
        kernels=isa.parse(asm, architecture),
        device_math="ocml" if bitcode else "own",
        log=_clean(result.stderr),
    ), True


def _compile(
    source: str,
    architecture: Architecture,
    knobs: tuple[str, ...],
    bitcode: ocml.Bitcode | None,
    cache: BuildCache | None,
    unsafe: bool,
) -> ToolResult:
    """Run the three steps; without a precompiled header where `cache` is None."""
    found = clang.find()
    files = {SOURCE: source.encode()}
    visible = [Path(found.folder), clang.INCLUDE]
    common = [*FLAGS, code_object_format(), f"--offload-arch={architecture.isa}", *WARNINGS]
    library: list[str] = []
    if cache and not bitcode:
        library, more = pch.flags(source, common, cache, unsafe=unsafe)
        visible += more
        files |= pch.files(source)
    if bitcode:
        files[ocml.CONSTANTS] = ocml.constants(architecture, code_object_version()).encode()
        visible.append(Path(bitcode.folder))
        library = ocml.flags(bitcode)
    front = [*common, *library, *knobs, "-I", str(clang.INCLUDE), "-S", SOURCE, "-o", "kernel.s"]
    return run_tool(
        ["/bin/sh", "-c", _SCRIPT, "sh", found.program, architecture.isa, *front],
        files=files,
        outputs=["kernel.s", "kernel.hsaco"],
        ro=visible,
        env={"ZIG_GLOBAL_CACHE_DIR": "zig-cache", "ZIG_LOCAL_CACHE_DIR": "zig-cache"},
        limits=LIMITS,
        unsafe=unsafe,
    )


def _failure(result: ToolResult) -> tuple[str, bool]:
    """(the log of a failed build, whether the source would always fail so)."""
    log = _clean(result.stderr)
    if result.timed_out:
        return f"the compiler was stopped after {LIMITS.wall_s:.0f} s\n{log}".strip(), False
    step = _STEPS.get(result.returncode)
    if step is None:
        raise ToolchainError(f"the compiler does not run (status {result.returncode}): {log[-300:]}", hint=clang.FIX)
    if "error:" not in log:
        return f"{step} crashed or was killed\n{log}".strip(), False
    return log, True


def include_outside(source: str) -> str:
    """The message for an #include outside the HIP headers, "" without one. The sandbox stops what this check misses."""
    if not ("/*" in source or ".." in source or _OUTWARDS.search(source)):
        return ""
    text = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), source)
    for found in _INCLUDE.finditer(text):
        name = found[1].strip()
        if name.startswith(("/", "~")) or ".." in name.split("/"):
            line = text.count("\n", 0, found.start()) + 1
            return f"{SOURCE}:{line}:1: error: refused: #include of {name!r} reaches outside the HIP headers"
    return ""


def _clean(stderr: str) -> str:
    """The messages of clang and lld without this machine's paths, cut at LOG_LIMIT."""
    text = stderr.replace(f"{clang.INCLUDE}/", "").replace(f"{clang.find().folder}/", "")
    text = text.replace("/build/", "")
    text = re.sub(r"\A(\d+ warnings?.*generated.*\n)+\Z", "", text)
    if len(text) <= LOG_LIMIT:
        return text.strip()
    return f"{text[:LOG_LIMIT].strip()}\n[{len(text) - LOG_LIMIT} more characters]"
