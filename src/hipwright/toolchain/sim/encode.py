"""Encodes instructions as the micro-ops of `sim_rt/sim.h`: 200 bytes each, with the handler's name by number."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hipwright.targets import TARGETS
from hipwright.toolchain.sim import forms, matrices, modifiers
from hipwright.toolchain.sim.listing import Instruction
from hipwright.toolchain.sim.modifiers import Modifiers
from hipwright.toolchain.sim.operands import (
    LITERAL,
    NONE,
    SGPR,
    VGPR,
    Operand,
    UnknownOperand,
    parse,
    select,
    split,
)

OP_BYTES = 200
GLOBAL, FLAT, SCRATCH = range(3)
KEEP_HIGH, STORE_COUNTER, FNUZ, IS_F32, IS_F16_F64 = 1, 2, 4, 8, 16
_HEAD = struct.Struct("<H6B H6B 4B ii IIII 4x Q")
_SRC = struct.Struct("<4B I Q Q")
_HWREG = re.compile(r"hwreg\((\w+)(?:,\s*(\d+),\s*(\d+))?\)")
_DS_DATA = re.compile(r"ds_(?:write|store)|ds_(?:b?permute)")


@dataclass
class Op:
    """One micro-op, in the fields of `sim_rt/sim.h`."""

    handler: str
    line: int = 0
    dst: list[Operand] = field(default_factory=list)
    src: list[Operand] = field(default_factory=list)
    mods: Modifiers = field(default_factory=Modifiers)
    op_sel: int = 0
    op_sel_hi: int = 0
    flags: int = 0
    segment: int = 0
    offset: int = 0
    offset2: int = 0
    target: int = 0
    extra: int = 0
    data: int = 0

    def pack(self, code: int) -> bytes:
        """The bytes of the micro-op. code: the number of its handler."""
        mods = self.mods
        omod = {"mul:2": 1, "mul:4": 2, "div:2": 3}
        scale = next((n for word, n in omod.items() if mods.words.get(word[:3]) == word[4:]), 0)
        unused = {"UNUSED_PAD": 0, "UNUSED_SEXT": 1, "UNUSED_PRESERVE": 2}[mods.words.get("dst_unused", "UNUSED_PAD")]
        head = _HEAD.pack(
            code,
            len(self.src),
            scale,
            mods.has("clamp"),
            mods.dpp,
            select(mods.words.get("dst_sel", "DWORD")) or (self.dst[0].sel if self.dst else 0),
            2 if self.dst and self.dst[0].sel else unused,
            mods.dpp_ctrl,
            mods.number("row_mask", 15),
            mods.number("bank_mask", 15),
            mods.has("bound_ctrl"),
            mods.number("fi"),
            self.op_sel,
            self.op_sel_hi,
            mods.bits("neg_lo", 0),
            mods.bits("neg_hi", 0),
            self.flags,
            self.segment,
            self.offset,
            self.offset2,
            self.target,
            self.line,
            self.extra or mods.dpp8,
            self.data,
            0,
        )
        nothing = Operand()
        places = [*(self.dst + [nothing] * 2)[:2], *(self.src + [nothing] * 4)[:4]]
        return head + b"".join(_SRC.pack(p.kind, p.mods, p.sel, 0, p.reg, p.value, 0) for p in places)


class Encoder:
    """Encodes the instructions of one listing. target: the architecture; labels: indices by name."""

    def __init__(self, target: str, labels: Mapping[str, int]) -> None:
        self._labels = labels
        self._rdna = target.startswith(("gfx10", "gfx11", "gfx12"))
        architecture = TARGETS.architecture(target)
        fnuz = architecture is not None and "float8_e4m3fnuz" in architecture.flops
        self._flags = (KEEP_HIGH | STORE_COUNTER if self._rdna else 0) | (FNUZ if fnuz else 0)

    def encode(self, instruction: Instruction) -> Op:
        """The micro-op; of an instruction that is not known, one with the handler `unsupported`."""
        try:
            op = self._encode(instruction.mnemonic, instruction.rest)
        except (UnknownOperand, ValueError, KeyError, IndexError):
            op = Op("unsupported")
        op.line = instruction.line
        op.flags |= self._flags
        return op

    def _encode(self, mnemonic: str, rest: str) -> Op:
        if mnemonic in forms.IGNORED:
            return Op("s_nop")
        if mnemonic.startswith(("s_setreg", "s_getreg")):
            return self._mode(mnemonic, rest)
        if mnemonic.startswith("s_waitcnt"):
            vm, lgkm, vs = modifiers.waits(mnemonic, rest)
            return Op("s_waitcnt", extra=vm, data=lgkm, target=vs)
        words, tail = split(rest)
        mods = modifiers.read(tail)
        name = forms.handler(mnemonic)
        if mnemonic.startswith(("global_", "flat_", "scratch_", "buffer_")):
            return self._memory(mnemonic, name, words, mods)
        if mnemonic.startswith("ds_"):
            return self._lds(name, words, mods)
        if mnemonic.startswith("s_"):
            return self._scalar(name, words, mods)
        if name in ("mfma", "wmma"):
            return Op(name, **matrices.fields(mnemonic, words, mods))
        return self._vector(mnemonic, name, words, mods)

    # ---------------------------------------------------------------- scalar

    def _scalar(self, name: str, words: list[str], mods: Modifiers) -> Op:
        if name.startswith(("s_branch", "s_cbranch")):
            return Op(name, target=self._labels[words[0]])
        if name.startswith("s_load_"):
            dst, base, offset = (parse(word) for word in words)
            if offset.kind == LITERAL:
                return Op(name, dst=[dst], src=[base], offset=_signed(offset.value, 32) + mods.number("offset"))
            return Op(name, dst=[dst], src=[base, offset], offset=mods.number("offset"))
        kind = forms.constant_type(name) if not name.startswith("s_b") else "b64" if name.endswith("64") else "b32"
        operands = [parse(word, kind) for word in words]
        if name.startswith(("s_movk_", "s_addk_", "s_mulk_", "s_cmpk_")) and not name.endswith("_u32"):
            operands = [replace(one, value=_signed(one.value, 16) & 0xFFFFFFFFFFFFFFFF) for one in operands]
        if forms.NO_RESULT.match(name):
            return Op(name, src=operands)
        if name in forms.KEEPS_TARGET:
            both = [operands[1], operands[0]] if name.startswith("s_bitset") else operands
            return Op(name, dst=[operands[0]], src=both)
        return Op(name, dst=operands[:1], src=operands[1:])

    def _mode(self, mnemonic: str, rest: str) -> Op:
        get = mnemonic.startswith("s_getreg")
        words = rest.partition(",")[::2] if get else split(rest)[0]  # the register's own words have blanks
        found = _HWREG.match(words[1].strip() if get else words[0])
        if found is None:
            raise UnknownOperand(rest)
        is_mode = found[1] == "HW_REG_MODE"
        if not is_mode and not get:
            raise UnknownOperand(rest)
        op = Op(
            "s_getreg" if get else "s_setreg", target=int(is_mode), extra=int(found[2] or 0), data=int(found[3] or 32)
        )
        if get:
            return replace(op, dst=[parse(words[0].strip())])
        return replace(op, src=[parse(words[1])])

    # ---------------------------------------------------------------- memory

    def _memory(self, mnemonic: str, name: str, words: list[str], mods: Modifiers) -> Op:
        family = mnemonic.split("_", 1)[0]
        if mods.has("lds") or mods.has("idxen") or mods.has("addr64"):
            raise UnknownOperand(mnemonic)
        if name.startswith("load_lds_") and family != "global":
            raise UnknownOperand(mnemonic)
        op = Op(name, segment={"global": GLOBAL, "flat": FLAT}.get(family, SCRATCH), offset=mods.number("offset"))
        operands = [parse(word) for word in words]
        if family == "buffer":
            return _private_buffer(op, name, operands, mods)
        store = name.startswith("store")
        returns = name.startswith("atomic") and (mods.has("sc0") or mods.has("glc"))
        has_result = (name.startswith("load") and not name.startswith("load_lds_")) or returns
        if has_result:
            op.dst, operands = operands[:1], operands[1:]
        address, *rest = operands
        data = rest.pop(0) if store or name.startswith("atomic") else Operand()
        op.src = [address, data, rest[0] if rest else Operand()]
        return op

    def _lds(self, name: str, words: list[str], mods: Modifiers) -> Op:
        op = Op(name, offset=mods.number("offset0"), offset2=mods.number("offset1"))
        operands = [parse(word) for word in words]
        if name.startswith("ds_swizzle"):
            return replace(
                op, offset=modifiers.swizzle(mods.words.get("offset", "0")), dst=operands[:1], src=operands[1:]
            )
        op.offset = op.offset or mods.number("offset")
        if name.startswith(("ds_read", "ds_permute", "ds_bpermute")) or "_rtn_" in name:
            op.dst, op.src = operands[:1], operands[1:]
        else:
            op.src = operands
        return op

    # ---------------------------------------------------------------- vector

    def _vector(self, mnemonic: str, name: str, words: list[str], mods: Modifiers) -> Op:
        kind = forms.constant_type(mnemonic)
        operands = [parse(word, kind) for word in words]
        if name.startswith(forms.INTEGER_LAST):
            operands[-1] = parse(words[-1])
        if mods.has("clamp") and not forms.clamps(name):
            raise UnknownOperand(f"clamp of {name}")
        results = 2 if name in forms.TWO_RESULTS else 1
        if name.startswith("v_cmpx_") and len(operands) == 2:
            results = 0
        op = Op(name, dst=operands[:results], src=operands[results:], mods=mods)
        if name in forms.ACCUMULATES:
            op.src.append(replace(op.dst[0], mods=0))
        for i in range(2):
            if mods.has(f"src{i}_sel"):
                op.src[i] = replace(op.src[i], sel=select(mods.words[f"src{i}_sel"]))
        packed = name.startswith(("v_pk_", "v_dot"))
        count = len(op.src)
        op.op_sel = mods.bits("op_sel", 0, None if packed or "mix" in name else count)
        op.op_sel_hi = mods.bits("op_sel_hi", (1 << count) - 1 if packed else 0)
        type_of = kind[:3]
        op.flags = IS_F32 if type_of == "f32" else IS_F16_F64 if type_of in ("f16", "f64", "pk1") else 0
        if name.startswith("v_bitop3"):
            op.extra = mods.number("bitop3")
        if name == "v_cndmask_b32" and len(op.src) == 2:
            op.src.append(Operand(SGPR, 106, 2))
        return op


def _private_buffer(op: Op, name: str, operands: list[Operand], mods: Modifiers) -> Op:
    """A buffer access of private memory, the only buffer that clang uses here; the run checks the descriptor."""
    if name.startswith("atomic"):
        raise UnknownOperand(name)
    data, address, descriptor, plus = operands
    if mods.has("offen") == (address.kind == NONE):
        raise UnknownOperand(name)
    op.extra = descriptor.reg + 1
    base = plus if plus.kind == SGPR else Operand()
    if plus.kind == LITERAL:
        op.offset += plus.value
    if name.startswith("load"):
        op.dst, op.src = [data], [address, Operand(), base]
    else:
        op.src = [address, data, base]
    return op


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def highest(ops: list[Op]) -> int:
    """Vector registers that the micro-ops use, AGPRs included: the number of the highest, plus 1."""
    return max((one.reg + one.count for op in ops for one in (*op.dst, *op.src) if one.kind == VGPR), default=0) + 2
