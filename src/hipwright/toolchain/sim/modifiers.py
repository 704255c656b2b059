"""Modifiers of AMD assembly: the words behind the operands, such as `offset:16`, `row_shr:1` or `op_sel:[0,1]`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hipwright.toolchain.sim.operands import UnknownOperand

_WORD = re.compile(r"([a-z_0-9]+)(?::(\[[^\]]*\]|swizzle\([^)]*\)|[-\w.]+))?")
_DPP = {
    "row_shl": 0x100,
    "row_shr": 0x110,
    "row_ror": 0x120,
    "row_newbcast": 0x150,
    "row_share": 0x150,
    "row_xmask": 0x160,
}
_DPP_FIXED = {"row_mirror": 0x140, "row_half_mirror": 0x141}
_DPP_WAVE = {"wave_shl": 0x130, "wave_rol": 0x134, "wave_shr": 0x138, "wave_ror": 0x13C}
_BROADCAST = {"15": 0x142, "31": 0x143}
_WITHOUT_EFFECT = frozenset(["sc1", "nt", "slc", "dlc", "scc", "gds", "th", "scope"])
NO_DPP, DPP16, DPP8 = range(3)


@dataclass
class Modifiers:
    """The modifiers of one instruction. words: those with a value or without, but for DPP's."""

    words: dict[str, str] = field(default_factory=dict)
    dpp: int = NO_DPP
    dpp_ctrl: int = 0
    dpp8: int = 0

    def has(self, name: str) -> bool:
        """Whether the word is there."""
        return name in self.words

    def number(self, name: str, default: int = 0) -> int:
        """The value of `name:value`."""
        return int(self.words[name], 0) if name in self.words else default

    def bits(self, name: str, default: int, dst_at: int | None = None) -> int:
        """The value of `name:[a,b,c]`, a in bit 0. dst_at: the number of sources; the entry behind them is bit 3."""
        if name not in self.words:
            return default
        values = [int(word) for word in self.words[name].strip("[]").split(",")]
        found = 0
        for i, value in enumerate(values):
            found |= value << (3 if dst_at is not None and i == dst_at else i)
        return found


def read(text: str) -> Modifiers:
    """The modifiers in a text. Raises UnknownOperand for a DPP control that it does not know."""
    found = Modifiers()
    for name, value in _WORD.findall(text):
        if name == "quad_perm":
            lanes = [int(word) for word in value.strip("[]").split(",")]
            found.dpp, found.dpp_ctrl = DPP16, sum(lane << (2 * i) for i, lane in enumerate(lanes))
        elif name == "dpp8":
            lanes = [int(word) for word in value.strip("[]").split(",")]
            found.dpp, found.dpp8 = DPP8, sum(lane << (3 * i) for i, lane in enumerate(lanes))
        elif name in _DPP:
            found.dpp, found.dpp_ctrl = DPP16, _DPP[name] | int(value, 0)
        elif name in _DPP_FIXED:
            found.dpp, found.dpp_ctrl = DPP16, _DPP_FIXED[name]
        elif name in _DPP_WAVE:
            found.dpp, found.dpp_ctrl = DPP16, _DPP_WAVE[name]
        elif name == "row_bcast":
            if value not in _BROADCAST:
                raise UnknownOperand(f"row_bcast:{value}")
            found.dpp, found.dpp_ctrl = DPP16, _BROADCAST[value]
        elif name not in _WITHOUT_EFFECT:
            found.words[name] = value
    return found


def swizzle(value: str) -> int:
    """The offset of ds_swizzle_b32: a number, or LLVM's spelling of one. Raises UnknownOperand."""
    if not value.startswith("swizzle("):
        return int(value, 0)
    kind, *rest = [word.strip() for word in value[8:-1].split(",")]
    numbers = [int(word, 0) for word in rest if not word.startswith('"')]
    if kind == "QUAD_PERM":
        return 0x8000 | sum(lane << (2 * i) for i, lane in enumerate(numbers))
    if kind == "BITMASK_PERM":
        keep = inverted = fixed = 0
        for i, char in enumerate(rest[0].strip('"')):
            bit = 1 << (4 - i)
            keep |= bit if char in "pi" else 0
            inverted |= bit if char == "i" else 0
            fixed |= bit if char == "1" else 0
        return keep | fixed << 5 | inverted << 10
    if kind == "BROADCAST":
        size, lane = numbers
        return (0x1F & ~(size - 1)) | lane << 5
    if kind == "SWAP":
        return 0x1F | numbers[0] << 10
    if kind == "REVERSE":
        return 0x1F | (numbers[0] - 1) << 10
    raise UnknownOperand(value)


def waits(mnemonic: str, rest: str) -> tuple[int, int, int]:
    """What vmcnt, lgkmcnt and vscnt may be at most after a wait, 255 for any. Raises UnknownOperand."""
    if mnemonic == "s_waitcnt_vscnt":
        return 255, 255, int(rest.split(",")[-1], 0)
    if mnemonic == "s_waitcnt_lgkmcnt":
        return 255, int(rest.split(",")[-1], 0), 255
    if re.fullmatch(r"(?:0x)?[0-9a-f]+", rest):
        number = int(rest, 0)
        return (number & 15) | (number >> 10 & 0x30), number >> 8 & 15, 255
    counts = {"vmcnt": 255, "lgkmcnt": 255, "expcnt": 255}
    for name, value in re.findall(r"(\w+)\((\d+)\)", rest):
        if name not in counts:
            raise UnknownOperand(f"the counter {name}")
        counts[name] = int(value)
    return counts["vmcnt"], counts["lgkmcnt"], 255
