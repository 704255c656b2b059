"""The refusals of the cpu target: HIP source becomes host code there, so its IR is audited before it is loaded.

A refused source is never compiled to a library, so none of it can run. The finished library is checked once more
(`check_library`): it has no initialisers, and no undefined symbol that the runtime does not need.
"""

from __future__ import annotations

import re
import struct

from hipwright.toolchain.cpu.ir import IrModule, Unreadable

RUNTIME_FUNCTIONS = frozenset(
    (
        "hw_fence",
        "hw_w_atomic",
        "hw_w_ballot",
        "hw_w_barrier",
        "hw_w_first",
        "hw_w_mfma",
        "hw_w_perm",
        "hw_w_push",
        "hw_w_store",
        "hw_w_sync",
        "hw_w_unsupported",
        "hw_yield",
    )
)
RUNTIME_VARIABLES = frozenset(
    (
        "hw_block_dim",
        "hw_block_index",
        "hw_grid_dim",
        "hw_lane",
        "hw_poison",
        "hw_thread_index",
    )
)
# Symbols of the C library that the runtime (cpu_rt/) or the code generator needs.
LIBRARY = frozenset(
    (
        "_exit",
        "clock_gettime",
        "fma",
        "fmaf",
        "fmax",
        "fmaxf",
        "fmin",
        "fminf",
        "fmod",
        "fmodf",
        "ldexp",
        "ldexpf",
        "memcpy",
        "memmove",
        "memset",
        "mmap",
        "mprotect",
        "munmap",
        "sigaction",
        "sigaltstack",
        "syscall",
    )
)
_INTRINSICS = re.compile(
    r"llvm\.(mem(cpy|set|move)(\.inline)?\.|lifetime\.|fma\.|fmuladd\.|sqrt\.|fabs\.|floor\.|ceil\.|trunc\.|rint\."
    r"|nearbyint\.|round\.|roundeven\.|copysign\.|(max|min)num\.|(max|min)imum(num)?\.|[us](max|min)\.|abs\.|ctpop\.|ctlz\."
    r"|cttz\.|bswap\.|bitreverse\.|fsh[lr]\.|[us](add|sub|mul)\.(with\.overflow|sat)\.|ushl\.sat\.|sshl\.sat\.|assume"
    r"|experimental\.noalias\.scope\.decl|vector\.(reduce|insert|extract|interleave2|deinterleave2)|is\.fpclass\."
    r"|trap|ubsantrap|expect\.|stacksave|stackrestore"
    r"|ldexp\.|frexp\.|l?lrint\.|l?lround\.|fpto[us]i\.sat\.|canonicalize\.|is\.constant\.|objectsize\."
    r"|prefetch\.|invariant\.|launder\.|strip\.|dbg\.|readcyclecounter|[us]cmp\.|ptrmask\.|freeze)"
)
_SECTIONS = {"hw_lds", "hw_dyn", "hw_kernels", "llvm.metadata"}
_FORBIDDEN_NAMES = LIBRARY | {"_init", "_fini", "_start", "main", "__truncsfbf2", "__truncdfbf2"}
_ASM = re.compile(r'\basm (?:sideeffect |alignstack |inteldialect |unwind )*"')
_CALL = re.compile(r"\b(?:call|invoke|callbr)\b([^@\"]*)")
_INDIRECT = re.compile(r"%[-\w.$]+\(|inttoptr|bitcast")


def refusal(module: IrModule) -> str | None:
    """The reason why this module must not be loaded, None where there is none."""
    return _module_level(module) or _declared(module) or _variables(module) or _bodies(module)


def _module_level(module: IrModule) -> str | None:
    for line in module.rest:
        if line.startswith("module asm"):
            return "assembly at file scope"
        if line.startswith(("@llvm.global_ctors", "@llvm.global_dtors")):
            return "a global constructor or destructor: it would run when the library is loaded"
    return None


def _declared(module: IrModule) -> str | None:
    for raw in module.declared:
        name = raw.strip('"')
        if name in RUNTIME_FUNCTIONS or name in ("memcpy", "memset", "memmove") or _INTRINSICS.match(name):
            continue
        if name.startswith("__cxa_guard"):
            return "a local static variable with a run-time initialiser"
        return f"the undefined function {name}"
    return None


def _variables(module: IrModule) -> str | None:
    for name, value in module.globals.items():
        words = value.split('"')[0].split()
        if "alias" in words or "ifunc" in words:
            return f"the alias {name}"
        if any(word.startswith("thread_local") for word in words):
            return f"the thread-local variable {name}"
        if "addrspace(" in value:
            return f"the address space of {name}"
        if (
            ("external" in words or "extern_weak" in words)
            and name not in RUNTIME_VARIABLES
            and '"hw_dyn"' not in value
        ):
            return f"the undefined variable {name}"
        section = re.search(r'section "([^"]*)"', value)
        if section and section.group(1) not in _SECTIONS:
            return f"the section {section.group(1)} of {name}"
        if name.startswith("llvm.") and name not in ("llvm.used", "llvm.compiler.used"):
            return f"the special variable {name}"
    return None


def _bodies(module: IrModule) -> str | None:
    for function in module.functions:
        name = function.name.strip('"')
        if name in _FORBIDDEN_NAMES or name.startswith(("hw_", "__hw_", "__libc", "_dl_", "__tsan")):
            return f"a function named {name}"
        if function.section not in ("", "hw_kernels"):
            return f"the section {function.section} of {name}"
        if re.search(r"\b(?:gc|prefix|prologue) ", function.lines[0].rpartition(")")[2]):
            return f"data in front of the function {name}"
        for line in function.lines[1:]:
            if why := _instruction(line):
                return f"{why} in {name}"
    return None


def _instruction(line: str) -> str | None:
    if "asm " in line and _ASM.search(line):
        return "inline assembly"
    if "addrspace(" in line:
        return "an address space of the host"
    stripped = line.lstrip()
    if stripped.startswith(("indirectbr", "callbr")) or "blockaddress(" in line:
        return "a computed jump"
    if " call " in line or stripped.startswith(("call ", "invoke ")):
        found = _CALL.search(line)
        if found and ("@" not in line or _INDIRECT.search(found.group(1))):
            return "a call through a pointer"
    return None


# ---------------------------------------------------------------- the finished library

_DT = {"INIT": 12, "FINI": 13, "INIT_ARRAY": 25, "FINI_ARRAY": 26, "PREINIT_ARRAY": 32}
_IRELATIVE = {62: 37, 183: 1032}  # e_machine -> relocation type that runs code while loading


def check_library(data: bytes) -> str | None:
    """The reason why this library must not be loaded: an initialiser or an unexpected symbol; None without one."""
    sections = _sections(data)
    machine = struct.unpack_from("<H", data, 18)[0]
    for kind, offset, size, entry, strings in sections:
        body = data[offset : offset + size]
        if kind == 6:  # SHT_DYNAMIC
            tags = {struct.unpack_from("<q", body, i)[0] for i in range(0, len(body), 16)}
            for name, tag in _DT.items():
                if tag in tags:
                    return f"the library has {name}"
        elif kind in (14, 15, 16):  # init, fini, preinit arrays
            return "the library has an initialiser array"
        elif kind == 4 and entry:  # SHT_RELA
            for i in range(0, len(body), entry):
                if struct.unpack_from("<QQ", body, i)[1] & 0xFFFFFFFF == _IRELATIVE.get(machine):
                    return "the library has an indirect function"
        elif kind == 11 and (unknown := _undefined(data, body, sections[strings]) - LIBRARY):  # SHT_DYNSYM
            return f"the undefined symbol {min(unknown)}"
    return None


def _sections(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """(type, offset, size, entry size, linked section) of each section header of an ELF64 file."""
    if data[:5] != b"\x7fELF\x02":
        raise Unreadable("not a 64-bit ELF file")
    table = struct.unpack_from("<Q", data, 40)[0]
    count = struct.unpack_from("<H", data, 60)[0]
    found = []
    for i in range(count):
        _, kind, _, _, offset, size, link, _, _, entry = struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i)
        found.append((kind, offset, size, entry, link))
    return found


def _undefined(data: bytes, symbols: bytes, strings: tuple[int, int, int, int, int]) -> set[str]:
    names = set()
    for i in range(24, len(symbols), 24):
        name, _, _, section = struct.unpack_from("<IBBH", symbols, i)
        if section == 0:
            start = strings[1] + name
            names.add(data[start : data.index(b"\0", start)].decode())
    return names
