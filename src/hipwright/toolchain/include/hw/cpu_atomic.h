// Atomics on the cpu target: one OS thread runs every fiber, so a plain read and write between two calls is atomic.
#pragma once

template <class HwT> struct hw_float_kind { enum { flag = 0 }; };
template <> struct hw_float_kind<float> { enum { flag = 1 }; };
template <> struct hw_float_kind<double> { enum { flag = 1 }; };
template <> struct hw_float_kind<_Float16> { enum { flag = 1 }; };
struct __half;
struct __half2;
struct __hip_bfloat16;
struct __hip_bfloat162;
template <> struct hw_float_kind<__half> { enum { flag = 1 }; };
template <> struct hw_float_kind<__half2> { enum { flag = 1 }; };
template <> struct hw_float_kind<__hip_bfloat16> { enum { flag = 1 }; };
template <> struct hw_float_kind<__hip_bfloat162> { enum { flag = 1 }; };

#ifndef __HIP_MEMORY_SCOPE_SINGLETHREAD
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#endif

// The flags of hw_w_atomic: whether it is a sum of floats; from the second byte on, whether it reads and writes at once,
// its order (__ATOMIC_*) and its scope (0 a wave, 1 a block, 2 the device).
HW_FN unsigned hw_scope(int scope) { return scope >= __HIP_MEMORY_SCOPE_AGENT ? 2u : scope == __HIP_MEMORY_SCOPE_WORKGROUP; }
HW_FN unsigned hw_atomic_flags(int order, int scope, unsigned rmw, unsigned flag) {
    return flag | rmw << 10 | (unsigned)order << 12 | hw_scope(scope) << 16;
}
// access: 0 a load, 1 a store or read-modify-write
template <class HwT> HW_FN HwT hw_atomic_old(const volatile HwT *p, unsigned access, unsigned flags) {
    return hw_unpack<HwT>(hw_w_atomic(0, p, sizeof(HwT), access, flags));
}
template <class HwT> HW_FN void hw_atomic_put(volatile HwT *p, HwT v) { hw_w_store(p, hw_pack(v), sizeof(HwT)); }
template <class HwT> HW_FN HwT hw_atomic_load(const HwT *p, int order, int scope) {
    return hw_atomic_old((const volatile HwT *)p, 0, hw_atomic_flags(order, scope, 0, 0));
}
template <class HwT> HW_FN HwT hw_atomic_load(const volatile HwT *p, int order, int scope) {
    return hw_atomic_old(p, 0, hw_atomic_flags(order, scope, 0, 0));
}
template <class HwT> HW_FN void hw_atomic_store(HwT *p, hw_same<HwT> v, int order, int scope) {
    hw_atomic_old((const volatile HwT *)p, 1, hw_atomic_flags(order, scope, 0, 0));
    hw_atomic_put((volatile HwT *)p, v);
}

// HIP's own are relaxed and of device scope, those of a block or the system say so.
#define HW_RMW(NAME, EXPRESSION, FLAG)                                                                                 \
    template <class HwT> HW_FN HwT hw_ordered_##NAME(HwT *p, hw_same<HwT> v, int order, int scope) {                   \
        HwT old = hw_atomic_old((const volatile HwT *)p, 1, hw_atomic_flags(order, scope, 1, FLAG));                   \
        hw_atomic_put((volatile HwT *)p, (HwT)(EXPRESSION));                                                           \
        return old;                                                                                                    \
    }                                                                                                                  \
    template <class HwT> HW_FN HwT NAME(HwT *p, hw_same<HwT> v) {                                                      \
        return hw_ordered_##NAME(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                                    \
    }                                                                                                                  \
    template <class HwT> HW_FN HwT NAME##_block(HwT *p, hw_same<HwT> v) {                                              \
        return hw_ordered_##NAME(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);                                \
    }                                                                                                                  \
    template <class HwT> HW_FN HwT NAME##_system(HwT *p, hw_same<HwT> v) { return NAME(p, v); }
HW_RMW(atomicAdd, old + v, hw_float_kind<HwT>::flag)
HW_RMW(atomicSub, old - v, hw_float_kind<HwT>::flag)
HW_RMW(atomicMin, v < old ? v : old, 0)
HW_RMW(atomicMax, v > old ? v : old, 0)
HW_RMW(atomicAnd, old & v, 0)
HW_RMW(atomicOr, old | v, 0)
HW_RMW(atomicXor, old ^ v, 0)
HW_RMW(atomicExch, v, 0)
HW_RMW(atomicInc, old >= v ? (HwT)0 : (HwT)(old + 1), 0)
HW_RMW(atomicDec, old == (HwT)0 || old > v ? v : (HwT)(old - 1), 0)
HW_RMW(unsafeAtomicAdd, old + v, hw_float_kind<HwT>::flag)
HW_RMW(atomicAddNoRet, old + v, hw_float_kind<HwT>::flag)
#undef HW_RMW

template <class HwT> HW_FN HwT hw_ordered_cas(HwT *p, hw_same<HwT> expected, hw_same<HwT> v, int order, int scope) {
    HwT old = hw_atomic_old((const volatile HwT *)p, 1, hw_atomic_flags(order, scope, 1, 0));
    if (hw_pack(old) == hw_pack((HwT)expected)) hw_atomic_put((volatile HwT *)p, (HwT)v);
    return old;
}
template <class HwT> HW_FN HwT atomicCAS(HwT *p, hw_same<HwT> expected, hw_same<HwT> v) {
    return hw_ordered_cas(p, expected, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class HwT> HW_FN bool hw_atomic_exchange_if(HwT *p, hw_same<HwT> *expected, hw_same<HwT> v, int order, int scope) {
    HwT old = hw_ordered_cas(p, *expected, v, order, scope);
    bool same = hw_pack(old) == hw_pack(*expected);
    *expected = old;
    return same;
}

#define __hip_atomic_load(p, order, scope) hw_atomic_load(p, order, scope)
#define __hip_atomic_store(p, v, order, scope) hw_atomic_store(p, v, order, scope)
#define __hip_atomic_exchange(p, v, order, scope) hw_ordered_atomicExch(p, v, order, scope)
#define __hip_atomic_fetch_add(p, v, order, scope) hw_ordered_atomicAdd(p, v, order, scope)
#define __hip_atomic_fetch_sub(p, v, order, scope) hw_ordered_atomicSub(p, v, order, scope)
#define __hip_atomic_fetch_and(p, v, order, scope) hw_ordered_atomicAnd(p, v, order, scope)
#define __hip_atomic_fetch_or(p, v, order, scope) hw_ordered_atomicOr(p, v, order, scope)
#define __hip_atomic_fetch_xor(p, v, order, scope) hw_ordered_atomicXor(p, v, order, scope)
#define __hip_atomic_fetch_min(p, v, order, scope) hw_ordered_atomicMin(p, v, order, scope)
#define __hip_atomic_fetch_max(p, v, order, scope) hw_ordered_atomicMax(p, v, order, scope)
#define __hip_atomic_compare_exchange_strong(p, e, v, success, failure, scope) hw_atomic_exchange_if(p, e, v, success, scope)
#define __hip_atomic_compare_exchange_weak(p, e, v, success, failure, scope) hw_atomic_exchange_if(p, e, v, success, scope)
