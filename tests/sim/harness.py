"""Runs snippets of AMD assembly on a simulated target: registers in, registers out, under the real launch ABI.

A snippet finds lane l's inputs in v10 to v17, wave-wide ones in s8 to s15, further inputs of `more` from v40 on, and
leaves results in v20 to v27.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hipwright.device.sim.launcher import SimLauncher
from hipwright.records import Build
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import build as sim
from hipwright.toolchain.sim import runtime
from hipwright.toolchain.sim.program import disassemble

VECTORS, SCALARS, RESULTS = 8, 8, 8
MORE = VECTORS * 64 + 64
"""The first word of further inputs."""
HEAD = """	.amdgcn_target "amdgcn-amd-amdhsa--{target}"
	.text
	.globl	snippet
	.p2align	8
	.type	snippet,@function
snippet:
	s_load_dwordx4 s[4:7], s[0:1], 0x0
	v_and_b32_e32 v0, 0x3ff, v0
	v_lshlrev_b32_e32 v1, 2, v0
	s_waitcnt lgkmcnt(0)
	s_load_dwordx8 s[8:15], s[4:5], 0x800
"""
TAIL = """	s_endpgm
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel snippet
		.amdhsa_group_segment_fixed_size {lds}
		.amdhsa_private_segment_fixed_size 256
		.amdhsa_kernarg_size 16
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 64
		.amdhsa_next_free_sgpr 40
		.amdhsa_accum_offset 32
{mode}	.end_amdhsa_kernel
	.text
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .address_space:  global
        .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .group_segment_fixed_size: {lds}
    .kernarg_segment_align: 8
    .kernarg_segment_size: 16
    .max_flat_workgroup_size: 1024
    .name:           snippet
    .private_segment_fixed_size: 256
    .sgpr_count:     40
    .symbol:         snippet.kd
    .vgpr_count:     64
    .wavefront_size: 64
amdhsa.target:   amdgcn-amd-amdhsa--{target}
amdhsa.version:
  - 1
  - 2
...

	.end_amdgpu_metadata
"""


@dataclass(frozen=True)
class _Param:
    name: str
    pointer: bool = True
    kind: str = "int32"


@dataclass(frozen=True)
class _Signature:
    name: str = "snippet"
    params: tuple[_Param, ...] = (_Param("given"), _Param("made"))


def assembly(
    snippet: str,
    *,
    target: str = "gfx942",
    inputs: int = VECTORS,
    results: int = 1,
    lds: int = 4096,
    mode: str = "",
    more: int = 0,
) -> str:
    """The text of a kernel around a snippet. mode: further directives; more: further inputs, from v40 on."""
    loads = [f"\tglobal_load_dword v{10 + i}, v1, s[4:5] offset:{256 * i}" for i in range(inputs)]
    for i in range(more):
        loads += [
            f"\tv_add_u32_e32 v2, {(MORE + 64 * i) * 4:#x}, v1",
            f"\tglobal_load_dword v{40 + i}, v2, s[4:5]",
        ]
    stores = [f"\tglobal_store_dword v1, v{20 + i}, s[6:7] offset:{256 * i}" for i in range(results)]
    body = ["\t" + line.strip() for line in snippet.strip().splitlines()]
    lines = [*loads, "\ts_waitcnt vmcnt(0) lgkmcnt(0)", *body, *stores]
    directives = "".join(f"\t\t{line}\n" for line in mode.split("\n") if line)
    return HEAD.format(target=target) + "\n".join(lines) + "\n" + TAIL.format(target=target, lds=lds, mode=directives)


class Simulated:
    """Runs snippets. cache: where the executor lies."""

    def __init__(self, cache: BuildCache) -> None:
        self.cache = cache

    @functools.cached_property
    def library(self) -> Path:
        """The executor."""
        return runtime.library(self.cache)

    def launcher(self, text: str, target: str = "gfx942", **options: object) -> SimLauncher:
        """A launcher of an assembly text."""
        built = sim.from_assembly(text, f"{target}@sim", Build(target=target, ok=True), self.cache)
        if noted := os.environ.get("HIPWRIGHT_SIM_TESTED"):  # benchmarks/simulated/instructions.py
            names, _ = disassemble(self.cache.get(built.blob))
            with Path(noted).open("a", encoding="utf-8") as file:
                file.write("\n".join(names["handlers"]) + "\n")
        signatures = {"snippet": _Signature()}
        return SimLauncher(str(self.library), str(self.cache.path(built.blob)), signatures, **options)  # type: ignore[arg-type]

    def run(
        self,
        snippet: str,
        vectors: np.ndarray | None = None,
        scalars: np.ndarray | None = None,
        *,
        results: int = 1,
        threads: int = 64,
        target: str = "gfx942",
        mode: str = "",
        more: np.ndarray | None = None,
        **options: object,
    ) -> np.ndarray:
        """The results as uint32 of shape (results, 64). vectors: (at most 8, 64) words; scalars: at most 8 words; more:
        (any, 64) words.
        """
        further = 0 if more is None else len(more)
        given = np.zeros(MORE + 64 * further, np.uint32)
        if more is not None:
            given[MORE:] = more.astype(np.uint32).ravel()
        if vectors is not None:
            given[: vectors.size] = vectors.astype(np.uint32).ravel()
        if scalars is not None:
            given[512 : 512 + scalars.size] = scalars.astype(np.uint32)
        inputs = VECTORS if vectors is None else max(len(vectors), 1)
        text = assembly(snippet, target=target, inputs=inputs, results=results, mode=mode, more=further)
        made = torch.zeros(RESULTS * 64, dtype=torch.int32)
        launcher = self.launcher(text, target, **options)
        launcher.launch("snippet", (1, 1, 1), (threads, 1, 1), 0, (torch.from_numpy(given.view(np.int32)), made))
        return made.numpy().view(np.uint32).reshape(RESULTS, 64)[:results].copy()
