"""Reads the assembly that clang writes for AMD GPUs: resources, occupancy and instruction mix of each kernel.

Resources come from the metadata document at the end (`.amdgpu_metadata`), instructions from the text between a
kernel's label and its end. Functions that were not inlined are counted in no kernel's mix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import ceil
from typing import Any

import yaml

from hipwright.records import KernelResources
from hipwright.targets import Architecture
from hipwright.toolchain.amd import codeobject

CLASSES = (
    "valu",
    "salu",
    "vmem_load",
    "vmem_store",
    "lds",
    "smem",
    "mfma",
    "trans",
    "branch",
    "barrier",
    "wave",
    "other",
)
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_METADATA = re.compile(r"^\s*\.amdgpu_metadata\n(.*?)^\s*\.end_amdgpu_metadata", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r"^\t([a-z][a-z0-9_]+)(?:[ \t]+([^;\n]*))?", re.MULTILINE)
_OCCUPANCY = re.compile(r"^; Occupancy: (\d+)", re.MULTILINE)

# The first pattern that matches a mnemonic determines its class.
_RULES = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"v_(mfma|smfmac|wmma|swmmac)", "mfma"),
        (r"v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos)_", "trans"),
        (r"v_(readlane|readfirstlane|writelane|permlane\w*)|ds_(b?permute|bpermute|swizzle)|v_\w+_dpp", "wave"),
        (r"v_", "valu"),
        (r"s_barrier", "barrier"),
        (r"s_(branch|cbranch|setpc|swappc|call|endpgm)", "branch"),
        (r"s_(load|buffer_load|scratch_load|store|atomic|memtime|memrealtime)", "smem"),
        (r"s_(waitcnt|wait_|nop|sleep|delay_alu|sendmsg|trap|icache|dcache|clause|code_end|setprio|sethalt)", "other"),
        (r"s_", "salu"),
        (r"ds_|lds_", "lds"),
        (r"(global|flat|buffer|tbuffer|scratch|image)_(load|gather)", "vmem_load"),
        (r"(global|flat|buffer|tbuffer|scratch|image)_(store|atomic)", "vmem_store"),
    )
]
_MEMORY = re.compile(r"(?:global|flat|buffer|tbuffer|scratch)_(?:load|store|atomic)_(\w+)")
_DWORDS = re.compile(r"dwordx(\d)")
_BITS = re.compile(r"(?:^|_)(?:[bufi]|bf)(8|16|32|64|96|128)(?:_|$)")


def parse(asm: str, architecture: Architecture | None) -> tuple[KernelResources, ...]:
    """The kernels of an assembly text, in its order, with their occupancy where the architecture is known.

    Raises ValueError for text without AMD metadata.
    """
    return tuple(_kernel(asm, entry, architecture) for entry in _document(asm)["amdhsa.kernels"])


def kernel_args(code: str | bytes) -> dict[str, list[tuple[int, int, str]]]:
    """For each kernel of an assembly text or a code object: (size, offset, kind) of every argument, in order.

    Sizes and offsets are bytes. kind is "global_buffer", "by_value", "dynamic_shared_pointer" or, for arguments
    that the runtime adds, "hidden_...".
    """
    document = _document(code) if isinstance(code, str) else codeobject.metadata(code)
    return {
        entry[".name"]: [(arg[".size"], arg[".offset"], arg[".value_kind"]) for arg in entry.get(".args", ())]
        for entry in document["amdhsa.kernels"]
    }


def occupancy(architecture: Architecture, vgprs: int, lds_bytes: int, workgroup: int, sgprs: int = 0) -> int:
    """The waves that one SIMD can hold at once, 0 if none fits.

    vgprs: of a wave, AGPRs included (they share the register file). lds_bytes: of one block; workgroup: its threads.
    The minimum of three limits (the rules of LLVM's GCNSubtarget): the register file over the wave's share
    rounded up to the granule; whole blocks in the LDS, spread over the SIMDs that share it; the hardware's own count.
    On gfx9 a wave with more than 100 SGPRs costs one more.
    """
    share = max(1, ceil(vgprs / architecture.vgpr_granule)) * architecture.vgpr_granule
    limits = [architecture.max_waves_per_simd, architecture.vgprs_per_simd // share]
    if architecture.wave == 64 and sgprs > 100:
        limits.append(7)
    if lds_bytes:
        # a gfx11 workgroup processor is two CUs that share their LDS
        units = 2 if architecture.wave == 32 else 1
        allocated = ceil(lds_bytes / architecture.lds_granule) * architecture.lds_granule
        waves = (units * architecture.lds_per_cu // allocated) * ceil(workgroup / architecture.wave)
        limits.append(ceil(waves / (units * architecture.simds_per_cu)))
    return min(limits)


def _document(asm: str) -> dict[str, Any]:
    found = _METADATA.search(asm)
    if not found:
        raise ValueError("no .amdgpu_metadata in this assembly")
    document: dict[str, Any] = yaml.load(found[1], _Loader)
    return document


def _kernel(asm: str, entry: dict[str, Any], architecture: Architecture | None) -> KernelResources:
    name = entry[".name"]
    body, tail = _sections(asm, name)
    counts, moved = Counter[str](), [0]
    for mnemonic, operands in _instructions(body):
        counts[classify(mnemonic, operands)] += 1
        moved.append(vmem_bytes(mnemonic))
    vgpr, agpr = int(entry[".vgpr_count"]), int(entry.get(".agpr_count", 0))
    lds, workgroup = entry[".group_segment_fixed_size"], entry[".max_flat_workgroup_size"]
    limits = [int(stated) for stated in _OCCUPANCY.findall(tail)[:1]]
    if architecture:  # LLVM ignores that LDS is allocated in granules, which matters on gfx950
        limits.append(occupancy(architecture, vgpr, lds, workgroup, entry[".sgpr_count"]))
    return KernelResources(
        name=name,
        vgpr=vgpr - agpr if agpr else vgpr,
        agpr=agpr,
        sgpr=entry[".sgpr_count"],
        lds_bytes=lds,
        scratch_bytes=entry[".private_segment_fixed_size"],
        spills=entry.get(".vgpr_spill_count", 0) + entry.get(".sgpr_spill_count", 0),
        occupancy=min(limits, default=0),
        max_workgroup=workgroup,
        instructions={kind: counts[kind] for kind in CLASSES if counts[kind]},
        vmem_bytes=sum(moved),
        widest_vmem_bytes=max(moved),
    )


def _sections(asm: str, name: str) -> tuple[str, str]:
    """(a function's instructions, the comments behind them up to the next function)."""
    start = re.search(rf"^{re.escape(name)}:", asm, re.MULTILINE)
    if not start:
        return "", ""
    # the kernel's descriptor (.amdhsa_...) lies between the last instruction and .Lfunc_end
    end = asm.find("\n.Lfunc_end", start.end())
    descriptor = asm.find("\n\t.section", start.end(), end)
    following = re.compile(r"^\t\.globl|^\t\.section\t\.AMDGPU\.gpr_maximums|^\t\.text|-- Begin function", re.MULTILINE)
    after = asm.find("; Kernel info:", end)
    stop = following.search(asm, after) if after >= 0 else None
    body = asm[start.end() : descriptor if descriptor >= 0 else end]
    return body, asm[end : stop.start() if stop else len(asm)]


def _instructions(body: str) -> Iterator[tuple[str, str]]:
    for found in _INSTRUCTION.finditer(body):
        yield found[1], found[2] or ""


def classify(mnemonic: str, operands: str = "") -> str:
    """The class of one instruction, one of `CLASSES`. DPP moves count as wave operations."""
    if "quad_perm:" in operands or "row_" in operands or "wave_sh" in operands:
        return "wave"
    return next((kind for rule, kind in _RULES if rule.match(mnemonic)), "other")


def vmem_bytes(mnemonic: str) -> int:
    """Bytes that a lane moves by a vector memory instruction, 0 for any other instruction."""
    found = _MEMORY.match(mnemonic)
    if not found:
        return 0
    width = found[1].removeprefix("lds_")
    if "pk_" in width:  # two 16-bit halves
        return 4
    if dwords := _DWORDS.search(width):
        return 4 * int(dwords[1])
    if "dword" in width:
        return 4
    if "short" in width:
        return 2
    if "byte" in width:
        return 1
    if bits := _BITS.search(width):
        return int(bits[1]) // 8
    return 8 if width.endswith("x2") else 4
