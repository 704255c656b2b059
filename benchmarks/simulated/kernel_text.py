"""Generated kernels as text: statements over integers, floats and halves, with branches, loops, arrays, LDS and lanes.

Only what has one result on every target: no signed overflow, no shift beyond the width, no contraction, no library
function that may round otherwise, atomics whose order is not seen, and lanes exchange values where all are active.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

Statement: TypeAlias = "str | tuple[str, tuple[Statement, ...]]"
"""A line, or the head of a block and what is in it."""
INPUTS = 1024
"""Elements of each input; a power of two."""
VARIABLES = {"i": 4, "l": 2, "f": 3, "d": 1, "h": 2}
TYPES = {"i": "u32", "l": "u64", "f": "float", "d": "double", "h": "f16"}
BLOCKS = (64, 128, 192, 256)
SPECIAL = (0, 1, 2, 3, 7, 31, 32, 255, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
COUNTERS = ("Add", "Max", "Min", "Or", "Xor", "And")
HEAD = """#include <hip/hip_runtime.h>
#include <hipwright/arithmetic.h>
#pragma clang fp contract(off)
typedef unsigned u32;
typedef _Float16 f16;
typedef unsigned long long u64;
static __device__ inline u32 to_int(float x) { return (u32)(int)fminf(fmaxf(x, -2.0e9f), 2.0e9f); }
static __device__ inline f16 add(f16 a, f16 b) { return a + b; }
static __device__ inline f16 subtract(f16 a, f16 b) { return a - b; }
static __device__ inline f16 multiply(f16 a, f16 b) { return a * b; }
static __device__ inline f16 to_half(float x) { return (f16)x; }
static __device__ inline f16 half_of(unsigned short x) { f16 h; __builtin_memcpy(&h, &x, 2); return h; }
static __device__ inline unsigned short bits_of(f16 h) { unsigned short x; __builtin_memcpy(&x, &h, 2); return x; }
static __device__ inline float in_half(float x) { return fminf(fmaxf(x, -60000.0f), 60000.0f); }
"""
PARAMS = (
    "const u32* __restrict__ xi, const float* __restrict__ xf, const unsigned short* __restrict__ xs, "
    "const unsigned char* __restrict__ xb, u32* oi, u64* ol, float* of, double* od, unsigned short* os, "
    "u32* counters, int n"
)


@dataclass(frozen=True)
class GeneratedKernel:
    """A kernel. name: of the function; block, grid: threads and blocks of its launch."""

    name: str
    body: tuple[Statement, ...]
    block: int
    grid: int

    def text(self) -> str:
        """The function."""
        declared = [f"{TYPES[kind]} {kind}{k} = {_first(kind, k)};" for kind, n in VARIABLES.items() for k in range(n)]
        stores = [
            *(f"oi[4 * at + {k}] = i{k};" for k in range(VARIABLES["i"])),
            *(f"ol[2 * at + {k}] = l{k};" for k in range(VARIABLES["l"])),
            *(f"of[3 * at + {k}] = f{k};" for k in range(VARIABLES["f"])),
            "od[at] = d0;",
            *(f"os[4 * at + {k}] = bits_of(h{k});" for k in range(VARIABLES["h"])),
            "os[4 * at + 2] = (unsigned short)i0;",
            "((unsigned char*)os)[8 * at + 6] = (unsigned char)i1;",
        ]
        lines = [
            f'extern "C" __global__ void __launch_bounds__({self.block}) {self.name}({PARAMS}) {{',
            f"  __shared__ u32 lds[{self.block}], sums[16];",
            f"  const u32 me = threadIdx.x, at = blockIdx.x * {self.block}u + me;",
            "  u32 t[8] = {};",
            "  u32 k0 = 0, k1 = 0;",
            *("  " + line for line in declared),
            *_lines(self.body, 1),
            "  if ((int)at >= n) return;",
            *("  " + line for line in stores),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def smaller(self) -> Iterator[GeneratedKernel]:
        """The kernel without one of its statements, or with what is in a block in its place."""
        for body in _without(self.body):
            yield replace(self, body=body)


def source(kernels: list[GeneratedKernel]) -> str:
    """One file of several kernels."""
    return HEAD + "\n".join(kernel.text() for kernel in kernels)


def generated(seed: str) -> GeneratedKernel:
    """The kernel of a seed; its name is k and the number behind the seed's last slash."""
    sketch = _Drawing(random.Random(seed))
    body = tuple(sketch.statement(0) for _ in range(sketch.rng.randint(4, 14)))
    block = sketch.rng.choice(BLOCKS)
    return GeneratedKernel(f"k{seed.rsplit('/', 1)[-1]}", body, block, sketch.rng.randint(1, 2))


def _first(kind: str, k: int) -> str:
    plain = {
        "i": f"xi[(at + {37 * k}) & {INPUTS - 1}]",
        "l": f"(u64)xi[(at + {5 + k}) & {INPUTS - 1}] << 32 | xi[(at * 3 + {k}) & {INPUTS - 1}]",
        "f": f"xf[(at + {11 * k}) & {INPUTS - 1}]",
        "d": f"(double)xf[(at + 3) & {INPUTS - 1}]",
        "h": f"half_of(xs[(at + {k}) & {INPUTS - 1}])",
    }
    return plain[kind]


def _lines(body: tuple[Statement, ...], depth: int) -> Iterator[str]:
    for one in body:
        if isinstance(one, str):
            yield "  " * depth + one
        else:
            yield "  " * depth + one[0] + " {"
            yield from _lines(one[1], depth + 1)
            yield "  " * depth + "}"


def _without(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    for i, one in enumerate(body):
        yield (*body[:i], *body[i + 1 :])
        if not isinstance(one, str):
            for inner in _without(one[1]):
                yield (*body[:i], (one[0], inner), *body[i + 1 :])


class _Drawing:
    """Draws statements and expressions. depth of an expression: how many more operators it may have."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    # ---------------------------------------------------------------- statements

    def statement(self, level: int) -> Statement:
        """One statement; level: blocks around it. What all threads of a block do together is at level 0."""
        choices = ["set"] * 8 + ["array", "atomic", "vector"] + (["if"] * 3 + ["loop"] * 2 if level < 2 else [])
        choices += ["lds", "lanes", "lanes", "vote", "sums"] if level == 0 else []
        kind = self.rng.choice(choices)
        if kind == "if":
            return (f"if ({self.condition(2)})", self._block(level))
        if kind == "loop":
            head = f"for (k{level} = 0; k{level} < ({self.i(1)} & 7u); ++k{level})"
            return (head, self._block(level))
        made: str = getattr(self, f"_{kind}")()
        return made

    def _block(self, level: int) -> tuple[Statement, ...]:
        return tuple(self.statement(level + 1) for _ in range(self.rng.randint(1, 4)))

    def _set(self) -> str:
        kind = self.rng.choice("iiiillffffdhh")
        return f"{self._name(kind)} = {getattr(self, kind)(3)};"

    def _array(self) -> str:
        return f"t[{self.i(1)} & 7u] = {self.i(2)};"

    def _atomic(self) -> str:
        k = self.rng.randrange(len(COUNTERS))
        return f"atomic{COUNTERS[k]}(&counters[{16 * k} + ({self.i(1)} & 15u)], {self.i(2)});"

    def _vector(self) -> str:
        at = f"({self.i(1)} & {INPUTS // 4 - 1}u)"
        if self.rng.random() < 0.5:
            return f"{{ const uint4 q = ((const uint4*)xi)[{at}]; i0 = q.x ^ q.w; i1 = q.y + q.z; }}"
        return f"{{ const float4 q = ((const float4*)xf)[{at}]; f0 = q.x - q.w; f1 = fminf(q.y, q.z); }}"

    def _lds(self) -> str:
        other = f"lds[(me + {self.rng.randrange(1, 255)}u) % blockDim.x]"
        return f"__syncthreads(); lds[me] = {self.i(2)}; __syncthreads(); {self._name('i')} = {other};"

    def _lanes(self) -> str:
        kind = self.rng.choice("iif")
        how = self.rng.choice(("xor", "down", "up", ""))
        step = self.rng.choice((1, 2, 3, 4, 8, 16, 31))
        value = f"(int){self.i(1)}" if kind == "i" else self.f(1)
        call = f"__shfl_{how}({value}, {step})" if how else f"__shfl({value}, {self.i(1)} & 31u)"
        return f"{self._name(kind)} = {'(u32)' if kind == 'i' else ''}{call};"

    def _vote(self) -> str:
        call = self.rng.choice(("(u32)__popcll(__ballot({}))", "(u32)__any({})", "(u32)__all({})"))
        return f"{self._name('i')} = {call.format(self.condition(1))};"

    def _sums(self) -> str:
        call = self.rng.choice(COUNTERS)
        first = f"__syncthreads(); if (me < 16u) sums[me] = {self.i(1)}; __syncthreads();"
        last = f"__syncthreads(); {self._name('i')} = sums[{self.i(1)} & 15u];"
        return f"{first} atomic{call}(&sums[{self.i(1)} & 15u], {self.i(1)}); {last}"

    # ---------------------------------------------------------------- expressions

    def _name(self, kind: str) -> str:
        return f"{kind}{self.rng.randrange(VARIABLES[kind])}"

    def condition(self, depth: int) -> str:
        """A boolean."""
        how = self.rng.choice(("u", "s", "f", "bit", "l", "and", "or") if depth else ("u", "bit"))
        op = self.rng.choice(("<", "<=", "==", "!=", ">", ">="))
        if how in ("and", "or"):
            joint = "&&" if how == "and" else "||"
            return f"({self.condition(depth - 1)} {joint} {self.condition(depth - 1)})"
        if how == "bit":
            return f"({self.i(max(depth - 1, 0))} & 1u) != 0u"
        kind, cast = {"u": ("i", ""), "s": ("i", "(int)"), "f": ("f", ""), "l": ("l", "")}[how]
        get = getattr(self, kind)
        return f"({cast}{get(max(depth - 1, 0))} {op} {cast}{get(max(depth - 1, 0))})"

    def i(self, depth: int) -> str:
        """A u32."""
        if depth <= 0 or self.rng.random() < 0.15:
            return self.rng.choice(
                [
                    *(self._name("i") for _ in range(6)),
                    *("me", "at", "k0", "k1", f"t[{self._name('i')} & 7u]"),
                    f"xi[{self._name('i')} & {INPUTS - 1}u]",
                    f"(u32)xb[{self._name('i')} & {INPUTS - 1}u]",
                    f"(u32)(int)(short)xs[{self._name('i')} & {INPUTS - 1}u]",
                    f"{self.rng.choice((*SPECIAL, self.rng.getrandbits(32)))}u",
                ]
            )
        a, b, c = (self.i(depth - 1) for _ in range(3))
        return self.rng.choice(
            [
                *(f"({a} {op} {b})" for op in ("+", "-", "*", "&", "|", "^", "+", "-", "&", "|")),
                *(f"({a} << ({b} & 31u))", f"({a} >> ({b} & 31u))", f"(u32)((int){a} >> ({b} & 31u))"),
                *(f"({a} << {b_} | {c} >> {32 - b_})" for b_ in (8, 16)),
                *(f"({a} / ({b} | 1u))", f"({a} % ({b} | 1u))"),
                f"(u32)((int){a} / (int)(({b} & 32767u) | 1u))",
                *(f"min({a}, {b})", f"max({a}, {b})", f"(u32)min((int){a}, (int){b})", f"(u32)max((int){a}, (int){b})"),
                *(f"({self.condition(1)} ? {a} : {b})", f"(u32)({a} < {b})", f"(~{a})", f"(0u - {a})"),
                *(f"({a} > {b} ? {a} - {b} : 0u)", f"({a} > ~{b} ? ~0u : {a} + {b})"),
                *(f"(u32)__popc({a})", f"(u32)__clz((int){a})", f"(u32)__ffs((int){a})", f"__brev({a})"),
                *(f"(({a} >> {s}) & 255u)" for s in (8, 16)),
                *(f"(u32)(int)(short){a}", f"(u32)(int)(signed char){a}", f"({a} & 0xffffu)"),
                *(f"__umulhi({a}, {b})", f"(u32)__mulhi((int){a}, (int){b})"),
                *(f"(({a} & 0xffffffu) * ({b} & 0xffffffu))", f"(({a} & {b}) | (~{a} & {c}))"),
                *(f"(u32)(unsigned short)((unsigned short){a} {op} (unsigned short){b})" for op in ("+", "-", "*")),
                *(
                    f"__byte_perm({a}, {b}, {c} & 0x7777u)",
                    f"(u32)({self.l(depth - 1)} >> 32)",
                    f"(u32){self.l(depth - 1)}",
                ),
                *(f"to_int({self.f(depth - 1)})", f"(u32)(int)(short)to_int((float){self.h(depth - 1)})"),
            ]
        )

    def l(self, depth: int) -> str:  # noqa: E743
        """A u64."""
        if depth <= 0 or self.rng.random() < 0.2:
            return self.rng.choice(
                [self._name("l"), f"(u64){self._name('i')}", f"(u64)(long long)(int){self._name('i')}"]
            )
        a, b = self.l(depth - 1), self.l(depth - 1)
        x, y = self.i(depth - 1), self.i(depth - 1)
        return self.rng.choice(
            [
                *(f"({a} {op} {b})" for op in ("+", "-", "*", "&", "|", "^")),
                *(f"({a} << ({x} & 63u))", f"({a} >> ({x} & 63u))", f"(u64)((long long){a} >> ({x} & 63u))"),
                *(f"((u64){x} * (u64){y})", f"((u64){x} * (u64){y} + {b})", f"((u64){x} << 32 | {y})"),
                *(f"({self.condition(1)} ? {a} : {b})", f"(u64)__popcll({a})", f"(u64)__clzll((long long){a})"),
                *(f"__umul64hi({a}, {b})", f"min({a}, {b})", f"(~{a})"),
            ]
        )

    def f(self, depth: int) -> str:
        """A float."""
        if depth <= 0 or self.rng.random() < 0.15:
            return self.rng.choice(
                [
                    *(self._name("f") for _ in range(5)),
                    f"xf[{self._name('i')} & {INPUTS - 1}u]",
                    *("1.0f", "-0.5f", "3.0e-39f", "1.5e38f", "0.33333334f"),
                    f"(float){self._name('h')}",
                ]
            )
        a, b, c = (self.f(depth - 1) for _ in range(3))
        x = self.i(depth - 1)
        return self.rng.choice(
            [
                *(f"({a} {op} {b})" for op in ("+", "-", "*", "+", "*", "/")),
                *(f"fmaf({a}, {b}, {c})", f"fmaf({a}, {b}, - {c})", f"(- {a})", f"fabsf({a})", f"sqrtf(fabsf({a}))"),
                *(f"({self.condition(1)} ? {a} : {b})", f"({a} < {b} ? {a} : {b})"),
                *(f"{fn}({a})" for fn in ("floorf", "ceilf", "truncf", "rintf")),
                *(f"fminf({a} + 1.0f, {b})", f"fmaxf({a} + 1.0f, {b})", f"copysignf({a}, {b})"),
                *(f"(float){x}", f"(float)(int){x}", f"(float)({x} & 255u)", f"(float)(({x} >> 8) & 255u)"),
                *(f"(float){self.h(depth - 1)}", f"(float){self.d(depth - 1)}", f"fminf(fmaxf({a}, 0.0f), 1.0f)"),
            ]
        )

    def d(self, depth: int) -> str:
        """A double."""
        if depth <= 0 or self.rng.random() < 0.3:
            return self.rng.choice(["d0", f"(double){self._name('f')}", f"(double)(int){self._name('i')}"])
        a, b = self.d(depth - 1), self.d(depth - 1)
        return self.rng.choice(
            [
                *(f"({a} {op} {b})" for op in ("+", "-", "*", "/")),
                *(f"fma({a}, {b}, {a})", f"sqrt(fabs({a}))", f"floor({a})", f"(- {a})", f"(double){self.i(depth - 1)}"),
                *(f"({self.condition(1)} ? {a} : {b})", f"(double){self.f(depth - 1)}"),
            ]
        )

    def h(self, depth: int) -> str:
        """A half."""
        if depth <= 0 or self.rng.random() < 0.2:
            return self.rng.choice([*(self._name("h") for _ in range(3)), f"to_half(in_half({self._name('f')}))"])
        a, b = self.h(depth - 1), self.h(depth - 1)
        return self.rng.choice(
            [
                *(f"{op}({a}, {b})" for op in ("add", "subtract", "multiply")),
                *(f"({self.condition(1)} ? {a} : {b})", f"(f16)(- {a})", f"({a} < {b} ? {a} : {b})"),
                *(f"to_half({self.f(depth - 1)})", f"to_half(in_half({self.f(depth - 1)}))"),
            ]
        )
