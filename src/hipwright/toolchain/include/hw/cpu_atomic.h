// Atomics on the cpu target: one OS thread runs every fiber, so a plain read and write between two calls is atomic.
#pragma once

template <class T> struct hw_float_kind { enum { flag = 0 }; };
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
template <class T> HW_FN T hw_atomic_old(const volatile T *p, unsigned access, unsigned flag) {
    return hw_unpack<T>(hw_w_atomic(0, p, sizeof(T), access, flag));
}
template <class T> HW_FN T hw_atomic_load(const volatile T *p) { return hw_atomic_old(p, 0, 0); }
template <class T> HW_FN T hw_atomic_load(T *p) { return hw_atomic_old((const volatile T *)p, 0, 0); }
template <class T> HW_FN void hw_atomic_put(volatile T *p, T v) { hw_w_store(p, hw_pack(v), sizeof(T)); }

#define HW_RMW(NAME, EXPRESSION, FLAG)                                                                                 \
    template <class T> HW_FN T NAME(T *p, hw_same<T> v) {                                                              \
        T old = hw_atomic_old((const volatile T *)p, 1, FLAG);                                                         \
        hw_atomic_put((volatile T *)p, (T)(EXPRESSION));                                                               \
        return old;                                                                                                    \
    }                                                                                                                  \
    template <class T> HW_FN T NAME##_block(T *p, hw_same<T> v) { return NAME(p, v); }                                 \
    template <class T> HW_FN T NAME##_system(T *p, hw_same<T> v) { return NAME(p, v); }
HW_RMW(atomicAdd, old + v, hw_float_kind<T>::flag)
HW_RMW(atomicSub, old - v, hw_float_kind<T>::flag)
HW_RMW(atomicMin, v < old ? v : old, 0)
HW_RMW(atomicMax, v > old ? v : old, 0)
HW_RMW(atomicAnd, old & v, 0)
HW_RMW(atomicOr, old | v, 0)
HW_RMW(atomicXor, old ^ v, 0)
HW_RMW(atomicExch, v, 0)
HW_RMW(atomicInc, old >= v ? (T)0 : (T)(old + 1), 0)
HW_RMW(atomicDec, old == (T)0 || old > v ? v : (T)(old - 1), 0)
HW_RMW(unsafeAtomicAdd, old + v, hw_float_kind<T>::flag)
HW_RMW(atomicAddNoRet, old + v, hw_float_kind<T>::flag)
#undef HW_RMW

template <class T> HW_FN T atomicCAS(T *p, hw_same<T> expected, hw_same<T> v) {
    T old = hw_atomic_old((const volatile T *)p, 1, 0);
    if (hw_pack(old) == hw_pack((T)expected)) hw_atomic_put((volatile T *)p, (T)v);
    return old;
}
template <class T> HW_FN bool hw_atomic_exchange_if(T *p, hw_same<T> *expected, hw_same<T> v) {
    T old = atomicCAS(p, *expected, v);
    bool same = hw_pack(old) == hw_pack(*expected);
    *expected = old;
    return same;
}
template <class T> HW_FN void hw_atomic_store(T *p, hw_same<T> v) { atomicExch(p, v); }

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
