"""The forms of AMD instructions: names that differ between architectures, results, types of constants."""

from __future__ import annotations

import re

TWO_RESULTS = frozenset(
    {
        *(f"v_{name}_co_u32" for name in ("add", "sub", "subrev", "addc", "subb", "subbrev")),
        *("v_mad_u64_u32", "v_mad_i64_i32", "v_div_scale_f32", "v_div_scale_f64"),
    }
)
ACCUMULATES = frozenset(
    {
        *("v_fmac_f32", "v_fmac_f64", "v_fmac_f16", "v_mac_f32", "v_dot2acc_f32_f16", "v_dot2c_f32_f16"),
        *("v_dot4c_i32_i8", "v_pk_fmac_f16"),
    }
)
"""The result is also the last source."""
IGNORED = frozenset(
    {
        *("s_nop", "s_setprio", "s_delay_alu", "s_clause", "s_inst_prefetch", "s_set_inst_prefetch_distance"),
        *("s_code_end", "s_waitcnt_depctr", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "s_ttracedata"),
        *("s_sethalt", "s_sendmsg", "s_wait_idle", "s_wakeup", "v_nop", "s_version", "s_set_gpr_idx_off"),
        *("buffer_wbl2", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_gl0_inv", "buffer_gl1_inv"),
    }
)
"""Instructions without an effect on values: hints, and caches, as memory is one."""
NO_RESULT = re.compile(r"s_(cmp|cmpk|bitcmp|branch|cbranch|setpc|barrier|endpgm|sleep|trap|nop)")
KEEPS_TARGET = frozenset({"s_addk_i32", "s_mulk_i32", "s_bitset0_b32", "s_bitset1_b32"})
"""Scalar instructions whose result is also their source."""
INTEGER_LAST = ("v_cmp_class_", "v_cmpx_class_", "v_ldexp_")
"""Instructions on floats of which the last operand is an integer: a constant there is no float."""
CUT = frozenset(
    {
        *(f"v_{name}_{kind}" for name in ("add", "sub") for kind in ("u32", "i32", "u16", "i16")),
        *(f"v_pk_{name}_{kind}" for name in ("add", "sub") for kind in ("u16", "i16")),
        *("v_subrev_u32", "v_subrev_u16"),
    }
)
"""Instructions on integers that the executor has with `clamp`, which cuts the result to what its type holds."""

_RENAMED = {
    "v_add_nc_u32": "v_add_u32",
    "v_sub_nc_u32": "v_sub_u32",
    "v_subrev_nc_u32": "v_subrev_u32",
    "v_add_co_ci_u32": "v_addc_co_u32",
    "v_sub_co_ci_u32": "v_subb_co_u32",
    "v_subrev_co_ci_u32": "v_subbrev_co_u32",
    "v_add_nc_u16": "v_add_u16",
    "v_sub_nc_u16": "v_sub_u16",
    "v_add_nc_i16": "v_add_i16",
    "v_sub_nc_i16": "v_sub_i16",
    "v_add_nc_i32": "v_add_i32",
    "v_sub_nc_i32": "v_sub_i32",
    "v_fma_dx9_zero_f32": "v_fma_legacy_f32",
    "v_mul_dx9_zero_f32": "v_mul_legacy_f32",
    "v_mov_b16": "v_mov_b16",
    "v_clz_i32_u32": "v_ffbh_u32",
    "v_ctz_i32_b32": "v_ffbl_b32",
    "v_cls_i32": "v_ffbh_i32",
    "v_cvt_floor_i32_f32": "v_cvt_flr_i32_f32",
    "v_cvt_nearest_i32_f32": "v_cvt_rpi_i32_f32",
    "v_dot4_u32_u8": "v_dot4_u32_u8",
    "s_waitcnt_lgkmcnt": "s_waitcnt",
    "s_and_not1_b32": "s_andn2_b32",
    "s_and_not1_b64": "s_andn2_b64",
    "s_or_not1_b32": "s_orn2_b32",
    "s_or_not1_b64": "s_orn2_b64",
    "s_memrealtime": "s_memtime",
    "s_endpgm_saved": "s_endpgm",
}
_WIDTHS = {"b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4", "b256": "dwordx8", "b512": "dwordx16"}
_PARTS = {"u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort", "b8": "byte", "b16": "short"}
_D16 = {
    "d16_b16": "short_d16",
    "d16_hi_b16": "short_d16_hi",
    "d16_u8": "ubyte_d16",
    "d16_hi_u8": "ubyte_d16_hi",
    "d16_i8": "sbyte_d16",
    "d16_hi_i8": "sbyte_d16_hi",
    "d16_hi_b8": "byte_d16_hi",
}
_ATOMICS = {"u32": "", "b32": "", "i32": "", "u64": "_x2", "b64": "_x2", "i64": "_x2"}
_ENCODING = re.compile(r"(?:_e32|_e64|_sdwa|_e64_dpp|_dpp|_dpp8|_e64_dpp8)$")
_MEMORY = re.compile(r"^(?:global|flat|scratch|buffer)_(load|store|atomic)_(\w+)$")
_TYPE = re.compile(r"(f16|f32|f64|b64|u64|i64|b16|u16|i16|bf16|b32|u32|i32)(?=_|$)")


def handler(mnemonic: str) -> str:
    """The executor's name of an instruction: without its encoding, and as gfx9 calls it."""
    name = _ENCODING.sub("", mnemonic)
    if name in _RENAMED:
        return _RENAMED[name]
    if found := _MEMORY.match(name):
        return f"{found[1]}_{_memory(found[1], found[2])}"
    if name.startswith("s_load_") and name[7:] in _WIDTHS:
        return f"s_load_{_WIDTHS[name[7:]]}"
    if name.startswith("ds_"):
        return _lds(name)
    return {"v_mfma_": "mfma", "v_wmma_": "wmma"}.get(name[:7], name)


def clamps(name: str) -> bool:
    """Whether the executor has an instruction's `clamp`: that of results in floating point, and CUT."""
    types = _TYPE.findall(name)
    return name in CUT or (bool(types) and types[0] in ("f16", "f32", "f64") and not name.startswith("v_cvt_pk"))


def constant_type(mnemonic: str) -> str:
    """The type that an instruction's constants have, as `operands.parse` names it: that of its last operand's type."""
    name = _ENCODING.sub("", mnemonic)
    if name.startswith("v_pk_") and name.endswith("16"):
        return "pk16"
    found = _TYPE.findall(name)
    last = found[-1] if found else "b32"
    if name in ("v_ldexp_f64", "v_ldexp_f32", "v_ldexp_f16") or last in ("f16", "f32", "f64"):
        return last
    return "b64" if last.endswith("64") else "b32"


def _memory(kind: str, rest: str) -> str:
    if kind == "atomic":
        words = rest.split("_")
        if words[-1] in _ATOMICS and words[0] != "pk":
            base, size = words[:-1], _ATOMICS[words[-1]]
            sign = {"i32": "s", "i64": "s", "u32": "u", "u64": "u"}.get(words[-1], "")
            if base[0] in ("min", "max"):
                base = [sign + base[0]]
            return f"{'_'.join(base)}{size}"
        return rest
    return _WIDTHS.get(rest) or _D16.get(rest) or _PARTS.get(rest) or rest


def _lds(name: str) -> str:
    name = name.replace("ds_load_2addr_stride64", "ds_read2st64").replace("ds_store_2addr_stride64", "ds_write2st64")
    name = name.replace("ds_load_2addr", "ds_read2").replace("ds_store_2addr", "ds_write2")
    name = name.replace("ds_load_", "ds_read_").replace("ds_store_", "ds_write_")
    return name.replace("ds_cmpstore", "ds_cmpst").replace("ds_storexchg", "ds_wrxchg")
