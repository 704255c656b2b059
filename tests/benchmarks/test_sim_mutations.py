"""Faults for machine code: each changes one line, and the changed line is an instruction."""

from __future__ import annotations

import random

from benchmarks.simulated.mutations import KINDS, faults, replaced

TEXT = """\tv_sub_f32_e32 v1, v2, v3
\ts_waitcnt vmcnt(1) lgkmcnt(0)
\tglobal_load_dwordx2 v[4:5], v6, s[0:1] offset:8
\ts_barrier
\tv_mov_b32_dpp v7, v8 row_shr:1 row_mask:0xf bank_mask:0xf
\tds_bpermute_b32 v9, v10, v11
\ts_and_saveexec_b64 s[2:3], vcc
\ts_cbranch_scc1 .LBB0_2
\tv_cmp_lt_u32_e32 vcc, 7, v12
\tv_add_u32_e32 v13, 64, v14
\tv_fma_f32 v15, -v16, v17, v18
\tv_mfma_f32_16x16x4_f32 v[20:23], v24, v25, v[20:23]
\tglobal_store_dword v26, v27, s[4:5]
"""


def test_every_kind_applies() -> None:
    found = faults(TEXT, random.Random(1), 50)
    assert {one.kind for one in found} == set(KINDS)
    lines = TEXT.split("\n")
    for one in found:
        changed = one.into(TEXT).split("\n")
        different = [i for i, (a, b) in enumerate(zip(lines, changed, strict=True)) if a != b]
        assert different == [one.line] and one.text.startswith("\t")


def test_examples() -> None:
    texts = {one.text.strip() for one in faults(TEXT, random.Random(1), 50)}
    assert "v_sub_f32_e64 v1, v3, v2" in texts
    assert "s_waitcnt vmcnt(2) lgkmcnt(0)" in texts and "s_nop 0" in texts
    assert "global_load_dword v4, v6, s[0:1] offset:8" in texts
    assert "v_mov_b32_dpp v7, v8 row_shl:1 row_mask:0xf bank_mask:0xf" in texts
    assert "s_cbranch_scc0 .LBB0_2" in texts and "v_fma_f32 v15, v16, v17, v18" in texts
    assert replaced("a\nb", 1, "c") == "a\nc"
