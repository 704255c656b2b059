"""The reader of assembly and code objects, against the compiler's own figures."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from hipwright.records import Build
from hipwright.targets import OFFLINE
from hipwright.toolchain.amd import codeobject, isa
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache

from . import kernels

Built = Callable[[str, str], Build]


def stated(cache: BuildCache, build: Build, what: str) -> int:
    """The compiler's own figure for the only kernel of a build."""
    asm = cache.get(build.isa_blob).decode()
    return int(re.findall(rf"^; {what}: (\d+)", asm[asm.index("; Kernel info:") :], re.MULTILINE)[0])


@pytest.mark.parametrize(("name", "target"), kernels.pairs(*kernels.EVERYWHERE, *kernels.WITH_MFMA))
def test_occupancy_formula_agrees_with_the_compiler(built: Built, cache: BuildCache, name: str, target: str) -> None:
    build = built(name, target)
    if not build.ok:
        assert name in kernels.WITH_MFMA and not OFFLINE[target].mfma
        return
    kernel = build.kernels[0]
    registers = stated(cache, build, "TotalNumVgprs") if OFFLINE[target].mfma else kernel.vgpr
    ours = isa.occupancy(OFFLINE[target], registers, kernel.lds_bytes, kernel.max_workgroup, kernel.sgpr)
    assert ours == stated(cache, build, "Occupancy") == kernel.occupancy


@pytest.mark.parametrize(("tile", "waves"), [(32, 8), (64, 3), (100, 1)])
def test_lds_limits_occupancy(tile: int, waves: int) -> None:
    # 4 KiB: 15 blocks of 4 waves; 16.6 KB: 3 blocks; 40.4 KB: 1 block, each spread over 4 SIMDs
    assert isa.occupancy(OFFLINE["gfx942"], 16, tile * (tile + 1) * 4, 256) == waves


def test_lds_is_given_in_granules() -> None:
    # 32 KiB become 26 granules of 1280 bytes on gfx950: 4 blocks of 4 waves, where 160 / 32 would say 5
    assert isa.occupancy(OFFLINE["gfx950"], 16, 32768, 256) == 4


def test_registers_limit_occupancy() -> None:
    cdna = [isa.occupancy(OFFLINE["gfx942"], n, 0, 256) for n in (1, 64, 65, 128, 129, 256, 257, 512)]
    assert cdna == [8, 8, 7, 4, 3, 2, 1, 1]
    rdna = [isa.occupancy(OFFLINE["gfx1100"], n, 0, 256) for n in (1, 96, 97, 192, 193, 256)]
    assert rdna == [16, 16, 12, 8, 7, 5]
    assert isa.occupancy(OFFLINE["gfx90a"], 8, 0, 256, sgprs=102) == 7
    assert isa.occupancy(OFFLINE["gfx942"], 520, 0, 256) == 0


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_registers_of_both_files(built: Built, cache: BuildCache, target: str) -> None:
    kernel = built("tiles", target).kernels[0]
    assert kernel.agpr == stated(cache, built("tiles", target), "NumAgprs") > 0
    assert kernel.vgpr + kernel.agpr == stated(cache, built("tiles", target), "TotalNumVgprs")


def test_spills_and_scratch_are_two_things(built: Built) -> None:
    spilled, stack = built("spills", "gfx942").kernels[0], built("stack", "gfx942").kernels[0]
    assert spilled.spills > 10 and spilled.scratch_bytes > 40
    assert stack.spills == 0 and stack.scratch_bytes >= 128  # the array of the function it calls


def test_lds_is_static_only(built: Built) -> None:
    assert built("transpose", "gfx942").kernels[0].lds_bytes == 32 * 33 * 4
    assert built("saxpy", "gfx942").kernels[0].lds_bytes == 0


def test_instruction_mix(built: Built) -> None:
    mix = {name: built(name, "gfx942").kernels[0].instructions for name in ("saxpy", "softmax", "atomics", "mfma")}
    assert mix["saxpy"]["vmem_load"] == 2 and mix["saxpy"]["vmem_store"] == 1
    assert "lds" not in mix["saxpy"] and "barrier" not in mix["saxpy"] and "wave" not in mix["saxpy"]
    assert mix["softmax"]["wave"] >= 12 and mix["softmax"]["barrier"] == 4 and mix["softmax"]["trans"] >= 2
    assert mix["softmax"]["lds"] >= 2 and mix["softmax"]["branch"] > 3
    assert mix["atomics"]["vmem_store"] > 12 and mix["mfma"]["mfma"] == 1
    assert all(set(m) <= set(isa.CLASSES) for m in mix.values())


def test_every_instruction_is_counted_once(built: Built, cache: BuildCache) -> None:
    build = built("saxpy", "gfx942")
    asm = cache.get(build.isa_blob).decode()
    body = asm[asm.index("\nsaxpy:") : asm.index("\t.section\t.rodata")]
    lines = [line for line in body.splitlines() if re.match(r"\t[a-z]\w*_", line)]
    assert sum(build.kernels[0].instructions.values()) == len(lines)


@pytest.mark.parametrize("target", OFFLINE)
def test_bytes_moved(built: Built, target: str) -> None:
    narrow, wide = built("saxpy", target).kernels[0], built("saxpy4", target).kernels[0]
    assert (narrow.vmem_bytes, narrow.widest_vmem_bytes) == (12, 4)
    assert wide.widest_vmem_bytes == 16 and wide.vmem_bytes % 48 == 0


@pytest.mark.parametrize(
    ("mnemonic", "kind", "moved"),
    [
        ("global_load_dwordx4", "vmem_load", 16),
        ("global_load_b128", "vmem_load", 16),
        ("global_load_ushort", "vmem_load", 2),
        ("global_load_u16", "vmem_load", 2),
        ("global_load_short_d16_hi", "vmem_load", 2),
        ("global_load_d16_b16", "vmem_load", 2),
        ("buffer_load_ubyte", "vmem_load", 1),
        ("flat_load_dword", "vmem_load", 4),
        ("global_load_lds_dwordx4", "vmem_load", 16),
        ("global_store_byte", "vmem_store", 1),
        ("global_store_b32", "vmem_store", 4),
        ("scratch_store_dwordx2", "vmem_store", 8),
        ("global_atomic_add_f32", "vmem_store", 4),
        ("global_atomic_add_f64", "vmem_store", 8),
        ("global_atomic_cmpswap", "vmem_store", 4),
        ("global_atomic_pk_add_bf16", "vmem_store", 4),
        ("global_atomic_add_x2", "vmem_store", 8),
        ("global_atomic_cmpswap_x2", "vmem_store", 8),
        ("ds_read_b128", "lds", 0),
        ("ds_add_u32", "lds", 0),
        ("ds_bpermute_b32", "wave", 0),
        ("v_readfirstlane_b32", "wave", 0),
        ("v_mov_b32_dpp", "wave", 0),
        ("v_permlanex16_b32", "wave", 0),
        ("v_exp_f32_e32", "trans", 0),
        ("v_rcp_iflag_f32_e32", "trans", 0),
        ("v_sqrt_f64_e32", "trans", 0),
        ("v_mfma_f32_32x32x8_f16", "mfma", 0),
        ("v_wmma_f32_16x16x16_f16", "mfma", 0),
        ("v_smfmac_f32_16x16x32_f16", "mfma", 0),
        ("v_pk_fma_f32", "valu", 0),
        ("v_cos_f32_e32", "trans", 0),
        ("v_add_co_u32_e32", "valu", 0),
        ("v_cmp_gt_i32_e32", "valu", 0),
        ("s_load_dwordx4", "smem", 0),
        ("s_load_b128", "smem", 0),
        ("s_barrier", "barrier", 0),
        ("s_cbranch_execz", "branch", 0),
        ("s_endpgm", "branch", 0),
        ("s_waitcnt", "other", 0),
        ("s_delay_alu", "other", 0),
        ("s_nop", "other", 0),
        ("s_mul_i32", "salu", 0),
        ("s_and_saveexec_b64", "salu", 0),
        ("buffer_wbl2", "other", 0),
    ],
)
def test_classes(mnemonic: str, kind: str, moved: int) -> None:
    assert (isa.classify(mnemonic), isa.vmem_bytes(mnemonic)) == (kind, moved)


def test_several_kernels_keep_their_order_and_their_own_figures(cache: BuildCache) -> None:
    text = kernels.LDS + kernels.SAXPY4.replace(kernels.HEAD, "") + kernels.SAXPY.replace(kernels.HEAD, "")
    found = amdgpu.build(text, "gfx1100", kernels.DEFINES, cache=cache).kernels
    assert [k.name for k in found] == ["transpose", "saxpy4", "saxpy"]
    assert [k.lds_bytes > 0 for k in found] == [True, False, False]
    assert [k.widest_vmem_bytes for k in found] == [4, 16, 4]


@pytest.mark.parametrize("code", [b"", b"\x7fELF", b"\x7fELF\x02" + bytes(80), b"MZ" + bytes(100)])
def test_what_is_no_code_object_is_refused(code: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        codeobject.metadata(code)


def test_assembly_without_metadata_is_refused() -> None:
    with pytest.raises(ValueError, match="amdgpu_metadata"):
        isa.parse("s_endpgm\n", None)


def test_a_truncated_code_object_is_refused(built: Built, cache: BuildCache) -> None:
    code = cache.get(built("saxpy", "gfx942").blob)
    with pytest.raises(ValueError):
        codeobject.metadata(code[:200])
