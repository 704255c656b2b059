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

// access: 0 a load, 1 a store or read-modify-write
template <class HwT> HW_FN HwT hw_atomic_old(const volatile HwT *p, unsigned access, unsigned flag) {
    return hw_unpack<HwT>(hw_w_atomic(0, p, sizeof(HwT), access, flag));
}
template <class HwT> HW_FN HwT hw_atomic_load(const volatile HwT *p) { return hw_atomic_old(p, 0, 0); }
template <class HwT> HW_FN HwT hw_atomic_load(HwT *p) { return hw_atomic_old((const volatile HwT *)p, 0, 0); }
template <class HwT> HW_FN void hw_atomic_put(volatile HwT *p, HwT v) { hw_w_store(p, hw_pack(v), sizeof(HwT)); }

#define HW_RMW(NAME, EXPRESSION, FLAG)                                                                                 \
    template <class HwT> HW_FN HwT NAME(HwT *p, hw_same<HwT> v) {                                                      \
        HwT old = hw_atomic_old((const volatile HwT *)p, 1, FLAG);                                                     \
        hw_atomic_put((volatile HwT *)p, (HwT)(EXPRESSION));                                                           \
        return old;                                                                                                    \
    }                                                                                                                  \
    template <class HwT> HW_FN HwT NAME##_block(HwT *p, hw_same<HwT> v) { return NAME(p, v); }                         \
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

template <class HwT> HW_FN HwT atomicCAS(HwT *p, hw_same<HwT> expected, hw_same<HwT> v) {
    HwT old = hw_atomic_old((const volatile HwT *)p, 1, 0);
    if (hw_pack(old) == hw_pack((HwT)expected)) hw_atomic_put((volatile HwT *)p, (HwT)v);
    return old;
}
template <class HwT> HW_FN bool hw_atomic_exchange_if(HwT *p, hw_same<HwT> *expected, hw_same<HwT> v) {
    HwT old = atomicCAS(p, *expected, v);
    bool same = hw_pack(old) == hw_pack(*expected);
    *expected = old;
    return same;
}
template <class HwT> HW_FN void hw_atomic_store(HwT *p, hw_same<HwT> v) { atomicExch(p, v); }

#ifndef __HIP_MEMORY_SCOPE_SINGLETHREAD
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#endif
#define __hip_atomic_load(p, order, scope) hw_atomic_load(p)
#define __hip_atomic_store(p, v, order, scope) hw_atomic_store(p, v)
#define __hip_atomic_exchange(p, v, order, scope) atomicExch(p, v)
#define __hip_atomic_fetch_add(p, v, order, scope) atomicAdd(p, v)
#define __hip_atomic_fetch_sub(p, v, order, scope) atomicSub(p, v)
#define __hip_atomic_fetch_and(p, v, order, scope) atomicAnd(p, v)
#define __hip_atomic_fetch_or(p, v, order, scope) atomicOr(p, v)
#define __hip_atomic_fetch_xor(p, v, order, scope) atomicXor(p, v)
#define __hip_atomic_fetch_min(p, v, order, scope) atomicMin(p, v)
#define __hip_atomic_fetch_max(p, v, order, scope) atomicMax(p, v)
#define __hip_atomic_compare_exchange_strong(p, e, v, success, failure, scope) hw_atomic_exchange_if(p, e, v)
#define __hip_atomic_compare_exchange_weak(p, e, v, success, failure, scope) hw_atomic_exchange_if(p, e, v)
