"""A kernel body for every name of hipwright's HIP headers, to be compiled by NVRTC.

Functions are read from the headers that AMD and the cpu target share: a name added there is tested on NVIDIA too.
"""

from __future__ import annotations

import re

from hipwright.toolchain import clang

HEADS = ("limits", "algorithm", "cstddef", "hip/hip_runtime.h", "hip/hip_fp16.h", "hip/hip_bfloat16.h")
_INTEGERS = ("int", "unsigned", "long", "unsigned long", "long long", "unsigned long long")
_PASSED = (*_INTEGERS, "float", "double", "__half", "__half2", "__hip_bfloat16", "__hip_bfloat162")


def source(bodies: list[str]) -> str:
    """A kernel for each body; body i is in line i + len(HEADS) + 1."""
    head = "".join(f"#include <{name}>\n" for name in HEADS)
    return head + "".join(
        f'extern "C" __global__ void k{i}(void* q, float f, double d, int i, long long l) {{ {body} }}\n'
        for i, body in enumerate(bodies)
    )


def bodies() -> list[str]:
    """All bodies."""
    return [*_overloads(), *_functions(), *_halves(), *_atomics(), *_shuffles(), *_OTHERS]


def _read(name: str) -> str:
    return (clang.INCLUDE / "hw" / name).read_text()


def _overloads() -> list[str]:
    """C's names for float, double, integers and mixtures, with the types that they have in HIP."""
    one = re.findall(r"^HW_(?:MATH1|PUBLIC1)\((\w+)", _read("math.h"), re.MULTILINE)
    two = re.findall(r"^HW_(?:MATH2|PUBLIC2)\((\w+)", _read("math.h"), re.MULTILINE)
    return [
        f"f = {name}f(f); d = {name}(d); f = {name}(f); d = {name}(i); d = {name}(l);"
        f"static_assert(std::is_same_v<decltype({name}(f)), float> && std::is_same_v<decltype({name}(i)), double>);"
        for name in one
    ] + [
        f"f = {name}f(f, f); d = {name}(d, d); f = {name}(f, f); d = {name}(i, i); d = {name}(f, d);"
        f"d = {name}(d, i); d = {name}(f, i); static_assert(std::is_same_v<decltype({name}(f, f)), float>);"
        for name in two
    ]


def _functions() -> list[str]:
    """Every plain function of the shared headers, with arguments of its own parameter types."""
    found = []
    for header in ("math.h", "half.h", "../hipwright/bfloat16_type.h", "bits.h"):
        text = _read(header)
        for name, parameters in re.findall(r"^HW_C?FN [\w ]+? (\w+)\(([^)]*)\)", text, re.MULTILINE):
            if not name.startswith(("hw_", "operator")):
                found.append(f"{name}({', '.join(_argument(p) for p in parameters.split(',') if p.strip())});")
        for kind, type_ in (("HALF", "__half"), ("BF16", "__hip_bfloat16")):
            for name in re.findall(rf"^HW_{kind}_MATH\((\w+)", text, re.MULTILINE):
                pair = f"{type_}2"
                found.append(f"*({type_}*)q = h{name}(*({type_}*)q); *({pair}*)q = h2{name}(*({pair}*)q);")
    return found


def _argument(parameter: str) -> str:
    type_ = re.sub(r"\w+$", "", parameter.strip()).replace("const ", "").strip() or parameter.strip()
    return f"*({type_.replace('*', '').strip()} **)q" if "*" in type_ else f"*({type_} *)q"


def _halves() -> list[str]:
    found = [
        f"__h{op}2(*(__half2*)q, *(__half2*)q); __hb{op}2(*(__half2*)q, *(__half2*)q);"
        for op in ("eq", "ne", "lt", "le", "gt", "ge")
    ]
    for type_ in ("__half", "__hip_bfloat16"):
        found.append(
            f"{type_} a = 1.0f, b = 2, c = 3.0, e = 4u, g = 5l, h = 6ll; a += b; a -= b; a *= b; a /= b;"
            "c = a + b * e - g / h; bool k = a < b || a > b || a <= b || a >= b || a == b || a != b; c = -a; c = +a;"
            "f = a; d = (double)a; i = (int)a; l = (long long)a; unsigned u = (unsigned)a; if (a || k) f = u;"
            f"{type_}_raw r = a; a = r; f = float(a) * 2.f; *({type_}*)q = c;"
        )
        found.append(
            f"{type_}2 a({type_}(1.f), {type_}(2.f)), b = a; a += b; a -= b; a *= b; a /= b; b = a + b * a - b / a;"
            f"{type_} x = a.x; a.y = x; *({type_}2*)q = b;"
        )
    return found


def _atomics() -> list[str]:
    found = []
    for type_ in _INTEGERS:
        for op in ("Add", "Min", "Max", "Exch", "And", "Or", "Xor"):
            calls = "".join(f"w = atomic{op}{scope}(z, ({type_})1);" for scope in ("", "_block", "_system"))
            found.append(f"{type_} *z = ({type_}*)q, w; {calls}")
        found.append(
            f"{type_} *z = ({type_}*)q, w; w = atomicSub(z, ({type_})1) + atomicCAS(z, ({type_})1, ({type_})2);"
            "w = __hip_atomic_fetch_add(z, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);"
            "w = __hip_atomic_load(z, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);"
            "__hip_atomic_store(z, w, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);"
            "__hip_atomic_compare_exchange_strong(z, &w, 3, 0, 0, __HIP_MEMORY_SCOPE_AGENT);"
        )
    for type_ in ("float", "double"):
        for op in ("Add", "Min", "Max"):
            calls = "".join(f"w = atomic{op}{scope}(z, ({type_})1);" for scope in ("", "_block", "_system"))
            found.append(f"{type_} *z = ({type_}*)q, w; {calls}")
        found.append(f"{type_} *z = ({type_}*)q; *z = atomicSub(z, *z) + atomicExch(z, *z); unsafeAtomicAdd(z, 1);")
    found += [
        f"{type_} *z = ({type_}*)q, w = atomicAdd(z, *z); w = unsafeAtomicAdd(z, w);"
        for type_ in ("__half2", "__hip_bfloat162")
    ]
    return [*found, "unsigned *z = (unsigned*)q; *z = atomicInc(z, 3) + atomicDec(z, 4); atomicAddNoRet(z, 1u);"]


def _shuffles() -> list[str]:
    return [
        f"{type_} v = *({type_}*)q; v = __shfl(v, 1); v = __shfl_up(v, 1, 16); v = __shfl_down(v, 1u, 8);"
        f"v = __shfl_xor(v, 1, 4); static_assert(std::is_same_v<decltype(__shfl(v, 1)), {type_}>); *({type_}*)q = v;"
        for type_ in _PASSED
    ]


_OTHERS = [
    "__builtin_memcpy(q, &d, sizeof d); i = __builtin_popcount(3u) + __builtin_clz(8u) + __builtin_ctzll(8ull);",
    "f = __builtin_fmaxf(f, __builtin_sqrtf(f)) + __builtin_nontemporal_load((float*)q); if (i > 5) __builtin_trap();",
    "__builtin_nontemporal_store(f, (float*)q); if (__builtin_expect(i > 3, 0)) f = __builtin_inff();",
    'f += __builtin_nanf("");',
    "static_assert(__builtin_huge_valf() > 1.f && __builtin_bit_cast(int, 1.0f) == 0x3f800000);",
    "static_assert(sizeof(__ballot(1)) == 8 && sizeof(__activemask()) == 8 && warpSize == 32);",
    "i = __popcll(__ballot(i > 0)) + __any(i) + __all(i); __shared__ float s[warpSize]; s[i] = f;",
    "i = __syncthreads_count(i) + __syncthreads_or(i) + __syncthreads_and(i) + __lane_id(); __syncwarp();",
    "__syncthreads(); __threadfence(); __threadfence_block(); __threadfence_system();",
    "l = clock64() + wall_clock64(); if (i == 77) abort(); if (i == 78) __trap();",
    'assert(i == 0); printf("%d %f\\n", i, f);',
    "HIP_DYNAMIC_SHARED(float, dyn); dyn[0] = f;",
    "float4 a(1, 2, 3, 4), b = make_float4(1, 2, 3, 4), c{1, 2, 3, 4}; a = a + b * 2.f - c; a += b; *(float4*)q = -a;",
    "static_assert(alignof(double4) == 32 && alignof(float4) == 16 && sizeof(float3) == 12 && alignof(int2) == 8);",
    "dim3 g = gridDim; uint3 t = threadIdx; uint3 u = blockIdx; i = g.x + t.y + u.z + blockDim.x + dim3(3).x;",
    "float4 a = __ldg((const float4*)q); int2 b = __ldg((const int2*)q); f = __ldg((const float*)q) + a.x + b.y;",
    "double2 a = __ldg((const double2*)q); __half h = __ldg((const __half*)q); d = a.x + (double)h;",
    "float2 p = __half22float2(*(__half2*)q); p = p + p; f = (__bfloat1622float2(*(__hip_bfloat162*)q) * 2.f).x + p.y;",
    "i = min(i, 3); l = min(i, l); f = min(f, 1.f); d = max(d, f); l = max(0, l); i = min((size_t)3, (size_t)i);",
    "static_assert(min(3, 4) == 3 && max(3u, 4u) == 4u); __shared__ int s[min(8, 4)]; s[i] = i;",
    "f = INFINITY; f = NAN; d = HUGE_VAL + M_PI; f = FLT_MAX; d = DBL_EPSILON; i = INT_MAX; l = LLONG_MIN;",
    "f = std::numeric_limits<float>::infinity(); static_assert(std::numeric_limits<float>::lowest() < 0);",
    "f = std::exp(f) + std::max(f, 1.f) + std::pow(f, 2.f) + std::fabs(f); i = std::clamp(i, 0, 3); std::swap(i, i);",
    "bool b = isnan(f) || isinf(d) || isfinite(f) || signbit(f) || isnan(i) || std::isnan(f); i = b;",
    "sincosf(f, &f, &f); sincos(d, &d, &d); sincospif(f, &f, &f); __sincosf(f, &f, &f);",
    "_Float16 a = (_Float16)f; half b = a; hip_bfloat16 c(f); f = (float)b + (float)c;",
    "auto twice = [&](float z) { return z * 2; }; f = twice(f);",
    "static_assert(std::is_same_v<std::decay_t<const int&>, int> && std::is_integral_v<const int>);",
    "static_assert(!std::is_pointer_v<int> && std::is_pointer_v<int* const> && std::is_unsigned_v<unsigned>);",
    "static_assert(std::is_same_v<std::make_unsigned_t<long>, unsigned long> && std::is_convertible_v<int, float>);",
    "static_assert(std::is_same_v<std::remove_pointer_t<int*>, int> && std::is_floating_point_v<float>);",
    "static_assert(std::is_same_v<std::common_type_t<int, float>, float> && offsetof(float4, y) == 4);",
    "static_assert(std::is_same_v<std::make_index_sequence<3>, std::index_sequence<0, 1, 2>>);",
    "uint8_t a = 1; int64_t b = 2; uint c = 1; ulong e = 2; ushort g = 3; uchar h = 4; l = a + b + c + e + g + h;",
]
