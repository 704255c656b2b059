// HIP's atomics under NVRTC: CUDA has most of them under the same names; the missing ones are made here.
// All are relaxed; device scope, or the scope in the name (_block, _system).
#pragma once
#include "nvidia.h"

// 64-bit integers that CUDA writes `unsigned long long`. NAME(HwT *) forwards to CUDA's NAME(hw_u64 *).
#define HW_AS_U64(NAME, HwT)                                                                                           \
    HW_DEV HwT NAME(HwT *p, HwT v) { return (HwT)NAME((hw_u64 *)p, (hw_u64)v); }
#define HW_SCOPES(HW, ...) HW(, __VA_ARGS__) HW(_block, __VA_ARGS__) HW(_system, __VA_ARGS__)
#define HW_ALIAS(SUFFIX, NAME, HwT) HW_AS_U64(NAME##SUFFIX, HwT)
#define HW_ALIAS_SIGNED(SUFFIX, NAME, HwT)                                                                             \
    HW_DEV HwT NAME##SUFFIX(HwT *p, HwT v) { return (HwT)NAME##SUFFIX((long long *)p, (long long)v); }
#define HW_LONGS(HwT)                                                                                                  \
    HW_SCOPES(HW_ALIAS, atomicAdd, HwT)                                                                                \
    HW_SCOPES(HW_ALIAS, atomicExch, HwT)                                                                               \
    HW_SCOPES(HW_ALIAS, atomicAnd, HwT)                                                                                \
    HW_SCOPES(HW_ALIAS, atomicOr, HwT)                                                                                 \
    HW_SCOPES(HW_ALIAS, atomicXor, HwT)                                                                                \
    HW_DEV HwT atomicCAS(HwT *p, HwT expected, HwT desired) {                                                          \
        return (HwT)atomicCAS((hw_u64 *)p, (hw_u64)expected, (hw_u64)desired);                                         \
    }
HW_LONGS(long)
HW_LONGS(unsigned long)
HW_SCOPES(HW_ALIAS, atomicMin, unsigned long)
HW_SCOPES(HW_ALIAS, atomicMax, unsigned long)
HW_SCOPES(HW_ALIAS_SIGNED, atomicMin, long)
HW_SCOPES(HW_ALIAS_SIGNED, atomicMax, long)
HW_SCOPES(HW_ALIAS, atomicAdd, long long)
HW_SCOPES(HW_ALIAS, atomicExch, long long)
HW_DEV long long atomicCAS(long long *p, long long expected, long long desired) {
    return (long long)atomicCAS((hw_u64 *)p, (hw_u64)expected, (hw_u64)desired);
}
HW_DEV long atomicSub(long *p, long v) { return atomicAdd(p, -v); }
HW_DEV unsigned long atomicSub(unsigned long *p, unsigned long v) { return atomicAdd(p, 0 - v); }
HW_DEV long long atomicSub(long long *p, long long v) { return atomicAdd(p, -v); }
HW_DEV hw_u64 atomicSub(hw_u64 *p, hw_u64 v) { return atomicAdd(p, 0 - v); }
HW_DEV float atomicSub(float *p, float v) { return atomicAdd(p, -v); }
HW_DEV double atomicSub(double *p, double v) { return atomicAdd(p, -v); }
HW_DEV double atomicExch(double *p, double v) { return hw_bits<double>(atomicExch((hw_u64 *)p, hw_bits<hw_u64>(v))); }

// Floats have no minimum in hardware: a compare-and-swap loop, which stops as soon as nothing would change.
template <class HwT, class HwWord, class HwF> HW_DEV HwT hw_atomic_loop(HwT *p, HwF changed) {
    HwWord *word = (HwWord *)p, old = *word, seen;
    do {
        seen = old;
        HwWord wanted = hw_bits<HwWord>(changed(hw_bits<HwT>(seen)));
        if (wanted == seen) break;
        old = atomicCAS(word, seen, wanted);
    } while (old != seen);
    return hw_bits<HwT>(old);
}
HW_DEV float atomicMin(float *p, float v) {
    return hw_atomic_loop<float, unsigned>(p, [v](float old) { return fminf(old, v); });
}
HW_DEV float atomicMax(float *p, float v) {
    return hw_atomic_loop<float, unsigned>(p, [v](float old) { return fmaxf(old, v); });
}
HW_DEV double atomicMin(double *p, double v) {
    return hw_atomic_loop<double, hw_u64>(p, [v](double old) { return fmin(old, v); });
}
HW_DEV double atomicMax(double *p, double v) {
    return hw_atomic_loop<double, hw_u64>(p, [v](double old) { return fmax(old, v); });
}
#define HW_FLOAT_SCOPES(NAME, HwT)                                                                                     \
    HW_DEV HwT NAME##_block(HwT *p, HwT v) { return NAME(p, v); }                                                      \
    HW_DEV HwT NAME##_system(HwT *p, HwT v) { return NAME(p, v); }
HW_FLOAT_SCOPES(atomicMin, float)
HW_FLOAT_SCOPES(atomicMax, float)
HW_FLOAT_SCOPES(atomicMin, double)
HW_FLOAT_SCOPES(atomicMax, double)

// CUDA's float add is the hardware's already.
template <class HwT> HW_DEV HwT unsafeAtomicAdd(HwT *p, typename hw_no_reference<HwT>::type v) { return atomicAdd(p, v); }
template <class HwT> HW_DEV void atomicAddNoRet(HwT *p, typename hw_no_reference<HwT>::type v) { atomicAdd(p, v); }

// ---------------------------------------------------------------- clang's __hip_atomic_*: an order, a scope

#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5

// Orders stronger than relaxed become fences before and after, which is more than any of them asks for.
HW_DEV void hw_order(int order, int scope) {
    if (order == __ATOMIC_RELAXED || scope < __HIP_MEMORY_SCOPE_WORKGROUP) return;
    if (scope == __HIP_MEMORY_SCOPE_WORKGROUP) __threadfence_block();
    else if (scope == __HIP_MEMORY_SCOPE_AGENT) __threadfence();
    else __threadfence_system();
}
#define HW_ORDERED(NAME, CALL)                                                                                         \
    template <class HwT> HW_DEV HwT hw_ordered_##NAME(HwT *p, typename hw_no_reference<HwT>::type v, int o, int s) {   \
        hw_order(o, s);                                                                                                \
        HwT old = CALL(p, v);                                                                                          \
        hw_order(o, s);                                                                                                \
        return old;                                                                                                    \
    }
HW_ORDERED(add, atomicAdd)
HW_ORDERED(sub, atomicSub)
HW_ORDERED(and, atomicAnd)
HW_ORDERED(or, atomicOr)
HW_ORDERED(xor, atomicXor)
HW_ORDERED(min, atomicMin)
HW_ORDERED(max, atomicMax)
HW_ORDERED(exchange, atomicExch)
template <class HwT> HW_DEV HwT hw_ordered_load(HwT *p, int o, int s) {
    hw_order(o, s);
    HwT value = *(volatile HwT *)p;
    hw_order(o, s);
    return value;
}
template <class HwT> HW_DEV void hw_ordered_store(HwT *p, typename hw_no_reference<HwT>::type v, int o, int s) {
    hw_order(o, s);
    *(volatile HwT *)p = v;
    hw_order(o, s);
}
template <class HwT> HW_DEV bool hw_ordered_swap(HwT *p, HwT *expected, typename hw_no_reference<HwT>::type v, int o, int s) {
    hw_order(o, s);
    HwT wanted = *expected, old = atomicCAS(p, wanted, v);
    hw_order(o, s);
    *expected = old;
    return old == wanted;
}
#define __hip_atomic_load(p, order, scope) hw_ordered_load(p, order, scope)
#define __hip_atomic_store(p, v, order, scope) hw_ordered_store(p, v, order, scope)
#define __hip_atomic_exchange(p, v, order, scope) hw_ordered_exchange(p, v, order, scope)
#define __hip_atomic_fetch_add(p, v, order, scope) hw_ordered_add(p, v, order, scope)
#define __hip_atomic_fetch_sub(p, v, order, scope) hw_ordered_sub(p, v, order, scope)
#define __hip_atomic_fetch_and(p, v, order, scope) hw_ordered_and(p, v, order, scope)
#define __hip_atomic_fetch_or(p, v, order, scope) hw_ordered_or(p, v, order, scope)
#define __hip_atomic_fetch_xor(p, v, order, scope) hw_ordered_xor(p, v, order, scope)
#define __hip_atomic_fetch_min(p, v, order, scope) hw_ordered_min(p, v, order, scope)
#define __hip_atomic_fetch_max(p, v, order, scope) hw_ordered_max(p, v, order, scope)
#define __hip_atomic_compare_exchange_strong(p, e, v, o, failure, scope) hw_ordered_swap(p, e, v, o, scope)
#define __hip_atomic_compare_exchange_weak(p, e, v, o, failure, scope) hw_ordered_swap(p, e, v, o, scope)
