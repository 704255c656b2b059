"""Faults in AMD assembly: what a compiler, or a hand that edits its output, may get wrong in one instruction."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_CODE = re.compile(r"^\t([a-z]\w*)(?:\s+([^;]*))?")
_VGPR = re.compile(r"(?<![\w\[:])v(\d+)\b")
_NONCOMMUTATIVE = re.compile(r"v_(?:sub|subrev|lshlrev|lshrrev|ashrrev)_\w+")
_WIDTH = {"dwordx4": "dwordx3", "dwordx2": "dword", "ushort": "ubyte", "ubyte": "sbyte"}


@dataclass(frozen=True)
class AssemblyFault:
    """One changed line. line: from 0; text: what it becomes."""

    kind: str
    line: int
    before: str
    text: str

    def into(self, assembly: str) -> str:
        """The assembly with the fault."""
        return replaced(assembly, self.line, self.text)


def replaced(assembly: str, line: int, text: str) -> str:
    """The assembly with another line."""
    lines = assembly.split("\n")
    lines[line] = text
    return "\n".join(lines)


def _dropped_wait(name: str, rest: str) -> Iterator[str]:
    if name == "s_waitcnt":
        yield "\ts_nop 0"


def _weaker_wait(name: str, rest: str) -> Iterator[str]:
    if name == "s_waitcnt":
        for found in re.finditer(r"(vmcnt|lgkmcnt)\((\d+)\)", rest):
            yield f"\t{name} {rest[: found.start(2)]}{int(found[2]) + 1}{rest[found.end(2) :]}"


def _other_source(name: str, rest: str) -> Iterator[str]:
    places = list(_VGPR.finditer(rest))[1:]
    if name.startswith("v_") and places:
        for found in places:
            yield f"\t{name} {rest[: found.start()]}v{int(found[1]) ^ 1}{rest[found.end() :]}"


def _other_result(name: str, rest: str) -> Iterator[str]:
    found = _VGPR.match(rest)
    if name.startswith("v_") and found:
        yield f"\t{name} v{int(found[1]) ^ 1}{rest[found.end() :]}"


def _exchanged(name: str, rest: str) -> Iterator[str]:
    parts = rest.split(", ")
    if _NONCOMMUTATIVE.match(name) and len(parts) == 3 and " " not in parts[2] and parts[1] != parts[2]:
        yield f"\t{name.replace('_e32', '_e64')} {parts[0]}, {parts[2]}, {parts[1]}"


def _with(name: str, rest: str, start: int, end: int, text: object) -> str:
    """The instruction with a part of its operands replaced."""
    return f"\t{name} {rest[:start]}{text}{rest[end:]}"


def _changed_constant(name: str, rest: str) -> Iterator[str]:
    found = re.search(r", (0x[0-9a-f]+|\d+)(?=,|$)", rest)
    if name.startswith(("v_", "s_lsh", "s_add", "s_mul", "s_mov_b32", "s_cmp")) and found:
        value = int(found[1], 0)
        flipped = value ^ (1 << max(value.bit_length() - 2, 0))
        yield _with(name, rest, found.start(1), found.end(1), hex(flipped))


def _lane_control(name: str, rest: str) -> Iterator[str]:
    if name == "ds_bpermute_b32":
        parts = rest.split(", ")
        yield f"\t{name} {parts[0]}, v0, {parts[2]}"
    for before, after in (("row_shr:1", "row_shl:1"), ("row_shr:2", "row_shr:1"), ("quad_perm:[1,0", "quad_perm:[0,1")):
        if before in rest:
            yield f"\t{name} {rest.replace(before, after)}"


def _memory_offset(name: str, rest: str) -> Iterator[str]:
    if re.match(r"(global|flat|ds)_", name) and "permute" not in name:
        if found := re.search(r"offset[01]?:(\d+)", rest):
            more = int(found[1]) + (4 if "offset:" in found[0] else 1)
            yield _with(name, rest, found.start(1), found.end(1), more)
        elif "2" not in name[:9]:
            yield f"\t{name} {rest.rstrip()} offset:4"


def _memory_width(name: str, rest: str) -> Iterator[str]:
    for wide, narrow in _WIDTH.items():
        if name.endswith(f"load_{wide}") and name.startswith("global"):
            short = re.sub(r"v.(\d+):(\d+).", _one_less, rest, count=1) if wide.startswith("dword") else rest
            yield f"\t{name.replace(wide, narrow)} {short}"


def _one_less(span: re.Match[str]) -> str:
    first, last = int(span[1]), int(span[2]) - 1
    return f"v[{first}:{last}]" if last > first else f"v{first}"


def _dropped_exec(name: str, rest: str) -> Iterator[str]:
    if name == "s_or_b64" and rest.startswith("exec,"):
        yield "\ts_nop 0"
    if name == "s_and_saveexec_b64":
        yield f"\ts_mov_b64 {rest.split(',')[0]}, exec"


def _other_branch(name: str, rest: str) -> Iterator[str]:
    pairs = {"scc0": "scc1", "scc1": "scc0", "vccz": "vccnz", "vccnz": "vccz"}
    last = name.rsplit("_", 1)[-1]
    if name.startswith("s_cbranch_") and last in pairs:
        yield f"\ts_cbranch_{pairs[last]} {rest}"


def _dropped_barrier(name: str, rest: str) -> Iterator[str]:
    if name == "s_barrier":
        yield "\ts_nop 0"


def _other_operation(name: str, rest: str) -> Iterator[str]:
    for before, after in (
        ("v_add_f32", "v_sub_f32"),
        ("v_mul_f32", "v_add_f32"),
        ("v_max_f32", "v_min_f32"),
        ("v_add_u32", "v_sub_u32"),
        ("v_fma_f32", "v_max3_f32"),
        ("v_and_b32", "v_or_b32"),
        ("v_pk_mul_f32", "v_pk_add_f32"),
        ("v_addc_co_u32", "v_subb_co_u32"),
        ("s_add_u32", "s_sub_u32"),
        ("v_lshl_add_u32", "v_add_lshl_u32"),
        ("v_exp_f32", "v_log_f32"),
        ("v_rcp_f32", "v_rsq_f32"),
    ):
        if name.startswith(before):
            yield f"\t{name.replace(before, after)} {rest}"


def _other_comparison(name: str, rest: str) -> Iterator[str]:
    for before, after in (("_lt_", "_gt_"), ("_gt_", "_lt_"), ("_eq_", "_ne_"), ("_ge_", "_lt_"), ("_le_", "_gt_")):
        if name.startswith(("v_cmp_", "s_cmp_", "s_cmpk_")) and before in name and "f32" not in name:
            after = "_lg_" if name.startswith("s_") and after == "_ne_" else after
            yield f"\t{name.replace(before, after)} {rest}"


def _dropped_instruction(name: str, rest: str) -> Iterator[str]:
    if name.startswith(("v_", "global_store", "ds_write")) and not name.startswith("v_nop"):
        yield "\ts_nop 0"


def _modifiers(name: str, rest: str) -> Iterator[str]:
    for before, after in (
        (" op_sel_hi:[0,1]", ""),
        (" neg_lo:[1,0,0]", ""),
        ("src0_sel:WORD_1", "src0_sel:WORD_0"),
        ("src1_sel:WORD_1", "src1_sel:WORD_0"),
        (" op_sel:[1,0]", ""),
    ):
        if before in rest:
            yield f"\t{name} {rest.replace(before, after)}"
    if found := re.search(r"-(v\d+)|\|(v\d+)\|", rest):
        yield f"\t{name} {rest[: found.start()]}{found[1] or found[2]}{rest[found.end() :]}"


def _matrix_operands(name: str, rest: str) -> Iterator[str]:
    parts = re.split(r", (?=v|\d)", rest)
    if name.startswith("v_mfma") and len(parts) == 4:
        yield f"\t{name} {parts[0]}, {parts[2]}, {parts[1]}, {parts[3]}"
        yield f"\t{name} {parts[0]}, {parts[1]}, {parts[2]}, 0"


KINDS: dict[str, Callable[[str, str], Iterator[str]]] = {
    "dropped wait": _dropped_wait,
    "weaker wait": _weaker_wait,
    "other source register": _other_source,
    "other result register": _other_result,
    "exchanged operands": _exchanged,
    "changed constant": _changed_constant,
    "wrong lane control": _lane_control,
    "wrong memory offset": _memory_offset,
    "wrong memory width": _memory_width,
    "EXEC not restored": _dropped_exec,
    "opposite branch": _other_branch,
    "dropped barrier": _dropped_barrier,
    "other operation": _other_operation,
    "other comparison": _other_comparison,
    "dropped instruction": _dropped_instruction,
    "dropped modifier": _modifiers,
    "matrix operands": _matrix_operands,
}


def faults(assembly: str, rng: random.Random, each: int) -> list[AssemblyFault]:
    """At most `each` faults of every kind, at random places."""
    found: dict[str, list[AssemblyFault]] = {kind: [] for kind in KINDS}
    for number, line in enumerate(assembly.split("\n")):
        if line.startswith("\t.amdhsa") or ".section" in line:
            continue
        code = _CODE.match(line)
        if code is None:
            continue
        for kind, change in KINDS.items():
            for text in change(code[1], (code[2] or "").strip()):
                if text.split() != line.split(";")[0].split():
                    found[kind].append(AssemblyFault(kind, number, line.strip(), text))
    return [one for kind in KINDS for one in rng.sample(found[kind], min(each, len(found[kind])))]
