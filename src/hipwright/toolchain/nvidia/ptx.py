"""Reads the PTX of a cubin: the instruction mix of each kernel, in the classes of AMD's.

PTX is not the machine code (ptxas allocates registers, unrolls and removes moves), but its memory accesses are those of
the machine code, and they dominate most kernels' time. Moves, conversions of addresses and parameter loads count as
"other": few remain. Functions that were not inlined are counted in no kernel's mix. Source: NVIDIA, "PTX ISA",
instruction set.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from hipwright.records import KernelResources
from hipwright.targets import Architecture
from hipwright.toolchain.amd.isa import occupancy

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Class = Literal[
    "valu", "vmem_load", "vmem_store", "lds", "smem", "mfma", "trans", "branch", "barrier", "wave", "other"
]
_ENTRY = re.compile(r"^\.(?:visible|weak)?\s*\.?entry\s+(\w+)\s*\(", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][a-z0-9_]*(?:\.[a-zA-Z0-9_:]+)*)", re.MULTILINE)
_BITS = re.compile(r"\.[bsuf](8|16|32|64|128)$|\.(?:bf16|f16)(x2)?$")
_VECTOR = re.compile(r"\.v([248])\b")

_RULES = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(wmma|mma|wgmma)\b", "mfma"),
        (r"(ex2|lg2|sin|cos|tanh|rcp|rsqrt|sqrt|div\.full|div\.approx)\b", "trans"),
        (r"(shfl|vote|match|activemask|redux|elect)\b", "wave"),
        (r"(bar|barrier)\b", "barrier"),
        (r"(bra|brx|ret|exit|call|trap)\b", "branch"),
        (r"(ld|st|atom|red|ldmatrix|stmatrix)\b.*\.shared", "lds"),
        (r"(ldmatrix|stmatrix)\b", "lds"),
        (r"ld\b.*\.(const)", "smem"),
        (r"ld\b.*\.param|(mov|cvta|pragma|reg|membar|fence|prefetch|nop)\b|(st)\b.*\.param", "other"),
        (r"(ld|ldu)\b", "vmem_load"),
        (r"(st|atom|red)\b", "vmem_store"),
    )
]


@functools.lru_cache(maxsize=4096)
def classify(mnemonic: str) -> str:
    """The class of `hipwright.toolchain.amd.isa.CLASSES` that an instruction such as "ld.global.v4.f32" counts as."""
    return next((kind for rule, kind in _RULES if rule.match(mnemonic)), "valu")


@functools.lru_cache(maxsize=4096)
def access_bytes(mnemonic: str) -> int:
    """Bytes that a thread moves by one global (or generic) memory instruction."""
    width = _BITS.search(mnemonic)
    item = (int(width[1]) // 8 if width[1] else 4 if width[2] else 2) if width else 4
    vector = _VECTOR.search(mnemonic)
    return item * (int(vector[1]) if vector else 1)


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `hipwright.records.KernelResources` that the PTX of a kernel tells."""

    instructions: dict[_Class, _Count]
    vmem_bytes: _Count
    widest_vmem_bytes: _Count


def mixes(ptx: str) -> dict[str, Mix]:
    """The mix of every entry, with the widths of its accesses."""
    return {name: _mix(body) for name, body in _bodies(ptx)}


def with_mix(
    kernels: Iterable[KernelResources], told: Any, architecture: Architecture | None, prefix: str = ""
) -> tuple[KernelResources, ...]:
    """The kernels' resources with their mixes and, where `architecture` is known, occupancy.

    told: `mixes` as plain types, from a process that read hostile source; msgspec.ValidationError where it is
    malformed. prefix: of kernels that were renamed for the compiler.
    """
    found = {name.removeprefix(prefix): mix for name, mix in msgspec.convert(told, dict[str, Mix]).items()}
    return tuple(_mixed(kernel, found.get(kernel.name, _mix("")), architecture) for kernel in kernels)


def _mixed(kernel: KernelResources, mix: Mix, architecture: Architecture | None) -> KernelResources:
    waves = occupancy(architecture, kernel.vgpr, 0, architecture.wave) if architecture else kernel.occupancy
    return replace(
        kernel,
        instructions={str(kind): count for kind, count in mix.instructions.items()},
        vmem_bytes=mix.vmem_bytes,
        widest_vmem_bytes=mix.widest_vmem_bytes,
        occupancy=waves,
    )


def _mix(body: str) -> Mix:
    counts, moved = Counter[str](), [0]
    for match in _INSTRUCTION.finditer(body):
        kind = classify(match[1])
        counts[kind] += 1
        if kind in ("vmem_load", "vmem_store"):
            moved.append(access_bytes(match[1]))
    return Mix(instructions=dict(counts), vmem_bytes=sum(moved), widest_vmem_bytes=max(moved))  # type: ignore[arg-type]


def _bodies(ptx: str) -> Iterable[tuple[str, str]]:
    """(name, text between its braces) of every entry."""
    for match in _ENTRY.finditer(ptx):
        start = ptx.find("\n{", match.end())
        end = ptx.find("\n}", start)
        if start >= 0:
            lines = ptx[start + 2 : end].splitlines()
            yield match[1], "\n".join(line for line in lines if not line.lstrip().startswith((".", "//", "$")))
