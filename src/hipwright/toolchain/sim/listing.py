"""Reads the assembly text that clang writes for AMD GPUs: instructions, labels, kernels and their directives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from hipwright.errors import ToolchainError
from hipwright.toolchain.sim import dual

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LABEL = re.compile(r"^\s*([.$\w]+):")
_INSTRUCTION = re.compile(r"^\s+[a-z]\w*(?:\s|$)")
_DIRECTIVE = re.compile(r"^\s*\.amdhsa_(\w+)\s+(\S+)")
_METADATA = re.compile(r"^\s*\.amdgpu_metadata\n(.*?)^\s*\.end_amdgpu_metadata", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r'^\s*\.amdgcn_target\s+"amdgcn-amd-amdhsa-\w*-(gfx\w+)', re.MULTILINE)


@dataclass(frozen=True)
class Instruction:
    """One instruction. line: of the assembly, from 1; rest: its operands and modifiers without comments."""

    line: int
    mnemonic: str
    rest: str

    def __str__(self) -> str:
        return f"{self.mnemonic} {self.rest}".strip()


@dataclass(frozen=True)
class KernelHeader:
    """A kernel's directives (`.amdhsa_*` by name) and its entry in the metadata document."""

    name: str
    directives: Mapping[str, int]
    metadata: Mapping[str, Any]

    def directive(self, name: str, default: int = 0) -> int:
        """The value of `.amdhsa_<name>`."""
        return self.directives.get(name, default)


@dataclass
class Listing:
    """All code of one assembly file. labels: the index of the instruction that follows each label."""

    target: str = ""
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, KernelHeader] = field(default_factory=dict)


def read(text: str) -> Listing:
    """The listing of an assembly file. Raises ToolchainError for a text without a target."""
    target = _TARGET.search(text)
    if target is None:
        raise ToolchainError("the assembly names no target")
    listing = Listing(target.group(1))
    directives = _read_lines(text, listing)
    found = _METADATA.search(text)
    entries = yaml.load(found.group(1), _Loader)["amdhsa.kernels"] if found else []
    by_name = {str(entry[".name"]): entry for entry in entries}
    for name, values in directives.items():
        if name not in by_name:
            raise ToolchainError(f"the assembly's metadata has no kernel {name}")
        listing.kernels[name] = KernelHeader(name, values, by_name[name])
    return listing


def _read_lines(text: str, listing: Listing) -> dict[str, dict[str, int]]:
    """Fills in instructions and labels; returns the directives of each kernel."""
    kernels: dict[str, dict[str, int]] = {}
    current: dict[str, int] | None = None
    code = True
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.split(";", 1)[0].split("//", 1)[0].rstrip()
        if not line:
            continue
        if line.lstrip().startswith("."):
            code = _section(line, code)
            words = line.split()
            if words[0] == ".amdhsa_kernel":
                current = kernels.setdefault(words[1], {})
            elif words[0] == ".end_amdhsa_kernel":
                current = None
            elif current is not None and (found := _DIRECTIVE.match(line)) and found[2].lstrip("-").isdigit():
                current[found[1]] = int(found[2])
            elif words[0] == ".amdgpu_metadata":
                break
        if found := _LABEL.match(line):
            listing.labels[found[1]] = len(listing.instructions)
        elif code and _INSTRUCTION.match(line):
            listing.instructions += _instructions(number, line.strip())
    return kernels


def _instructions(number: int, text: str) -> list[Instruction]:
    """The instruction of a line, or the two of a pair."""
    parts = dual.halves(text) if dual.MARK in text else [text]
    words = [re.split(r"\s+", part, maxsplit=1) for part in parts]
    return [Instruction(number, word[0], word[1] if len(word) > 1 else "") for word in words]


def _section(line: str, code: bool) -> bool:
    """Whether the lines after a directive are code."""
    words = line.split()
    if words[0] == ".text":
        return True
    if words[0] == ".section":
        return words[1].startswith(".text")
    return code
