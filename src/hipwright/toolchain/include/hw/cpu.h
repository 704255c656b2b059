// The HIP device API on the cpu target: each thread is a fiber of the runtime in cpu_rt/. See docs/cpu-target.md.
//
// The first argument of every hw_w_* call is a place holder: toolchain/cpu/sites.py replaces it by the number of the
// call's place in the program, which tells the runtime which lanes wait together.
#pragma once
#include "attr.h"
#include "types.h"

#ifndef HW_WAVE
#define HW_WAVE 64
#endif

#define __global__ __attribute__((section("hw_kernels")))
#define __shared__ static __attribute__((section("hw_lds"), used)) // used: a read of what nobody wrote is not folded
#define __hw_dynamic_shared__ __attribute__((section("hw_dyn"), visibility("hidden"))) // from `extern __shared__`
#define __constant__
#define __managed__
#define HIP_DYNAMIC_SHARED(type, name) extern __hw_dynamic_shared__ type name[];
#define HW_CONVERGENT __attribute__((convergent, visibility("hidden")))

typedef unsigned long long hw_u64;
struct hw_index3 {
    unsigned x, y, z;
    HW_METHOD operator dim3() const { return dim3(x, y, z); }
    HW_METHOD operator uint3() const { return uint3(x, y, z); }
};

extern "C" {
extern __attribute__((visibility("hidden"))) const hw_index3 hw_thread_index, hw_block_index, hw_block_dim, hw_grid_dim;
extern __attribute__((visibility("hidden"))) const unsigned hw_lane;
extern __attribute__((visibility("hidden"))) const hw_u64 hw_poison;
HW_CONVERGENT hw_u64 hw_w_perm(unsigned site, hw_u64 value, unsigned source, hw_u64 otherwise);
HW_CONVERGENT hw_u64 hw_w_push(unsigned site, hw_u64 value, unsigned target);
HW_CONVERGENT hw_u64 hw_w_ballot(unsigned site, int vote);
HW_CONVERGENT hw_u64 hw_w_first(unsigned site, hw_u64 value);
HW_CONVERGENT void hw_w_sync(unsigned site);
HW_CONVERGENT unsigned hw_w_barrier(unsigned site, int vote, unsigned kind);
HW_CONVERGENT hw_u64 hw_w_atomic(unsigned site, const volatile void *p, unsigned size, unsigned access, unsigned flags);
HW_CONVERGENT void hw_w_mfma(unsigned site, unsigned shape, const void *a, const void *b, const void *c, void *d);
HW_CONVERGENT void hw_w_unsupported(unsigned site);
__attribute__((visibility("hidden"))) void hw_w_store(volatile void *p, hw_u64 bits, unsigned size);
__attribute__((visibility("hidden"))) void hw_yield(void);
__attribute__((visibility("hidden"))) void hw_fence(unsigned order, unsigned scope);
}

#define threadIdx hw_thread_index
#define blockIdx hw_block_index
#define blockDim hw_block_dim
#define gridDim hw_grid_dim
static constexpr int warpSize = HW_WAVE;

template <class HwT> struct hw_identity { typedef HwT type; };
template <class HwT> using hw_same = typename hw_identity<HwT>::type;
template <int HwN> struct hw_raw;
template <> struct hw_raw<1> { typedef unsigned char type; };
template <> struct hw_raw<2> { typedef unsigned short type; };
template <> struct hw_raw<4> { typedef unsigned int type; };
template <> struct hw_raw<8> { typedef hw_u64 type; };
template <class HwT> HW_FN hw_u64 hw_pack(HwT v) { return __builtin_bit_cast(typename hw_raw<sizeof(HwT)>::type, v); }
template <class HwT> HW_FN HwT hw_unpack(hw_u64 bits) {
    return __builtin_bit_cast(HwT, (typename hw_raw<sizeof(HwT)>::type)bits);
}

// ---- barriers and fences

HW_FN void __syncthreads() { hw_w_barrier(0, 0, 0); }
HW_FN int __syncthreads_count(int predicate) { return (int)hw_w_barrier(0, predicate != 0, 0); }
HW_FN int __syncthreads_and(int predicate) { return (int)hw_w_barrier(0, predicate != 0, 1); }
HW_FN int __syncthreads_or(int predicate) { return (int)hw_w_barrier(0, predicate != 0, 2); }
HW_FN void __builtin_amdgcn_s_barrier() { hw_w_barrier(0, 0, 0); }
// scope: 0 a wave, 1 a block, 2 the device
HW_FN void hw_fence_of(int order, unsigned scope) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    hw_fence((unsigned)order, scope);
}
HW_FN unsigned hw_named_scope(const char *name) { // "wavefront", "singlethread", "workgroup", "agent", "" (and "-one-as")
    return name[0] == 'w' ? name[1] == 'o' : name[0] == 's' ? 0u : 2u;
}
HW_FN void __threadfence() { hw_fence_of(__ATOMIC_SEQ_CST, 2); }
HW_FN void __threadfence_block() { hw_fence_of(__ATOMIC_SEQ_CST, 1); }
HW_FN void __threadfence_system() { hw_fence_of(__ATOMIC_SEQ_CST, 2); }
#define __builtin_amdgcn_fence(order, scope, ...) hw_fence_of(order, hw_named_scope(scope))
HW_FN void __syncwarp(hw_u64 = ~0ull) { hw_w_sync(0); }
HW_FN void __builtin_amdgcn_wave_barrier() { hw_w_sync(0); }
HW_FN void __builtin_amdgcn_s_sleep(int) { hw_yield(); }
HW_FN void __nanosleep(unsigned) { hw_yield(); }
HW_FN void __builtin_amdgcn_s_waitcnt(int) {}
HW_FN void __builtin_amdgcn_sched_barrier(int) {}
HW_FN void __builtin_amdgcn_sched_group_barrier(int, int, int) {}
HW_FN void __builtin_amdgcn_iglp_opt(int) {}
HW_FN void __builtin_amdgcn_s_setprio(int) {}
HW_FN void __trap() { __builtin_trap(); }
HW_FN void abort() { __builtin_trap(); }
HW_FN long long clock64() { return (long long)__builtin_readcyclecounter(); }
HW_FN long long wall_clock64() { return (long long)__builtin_readcyclecounter(); }
HW_FN long long clock() { return (long long)__builtin_readcyclecounter(); }

// ---- lanes

HW_FN unsigned __lane_id() { return hw_lane; }
HW_FN unsigned __builtin_amdgcn_mbcnt_lo(unsigned mask, unsigned base) {
    unsigned below = hw_lane >= 32 ? ~0u : (1u << hw_lane) - 1;
    return base + (unsigned)__builtin_popcount(mask & below);
}
HW_FN unsigned __builtin_amdgcn_mbcnt_hi(unsigned mask, unsigned base) {
    unsigned below = hw_lane <= 32 ? 0 : (1u << (hw_lane - 32)) - 1;
    return base + (unsigned)__builtin_popcount(mask & below);
}
HW_FN unsigned __builtin_amdgcn_workitem_id_x() { return threadIdx.x; }
HW_FN unsigned __builtin_amdgcn_workitem_id_y() { return threadIdx.y; }
HW_FN unsigned __builtin_amdgcn_workitem_id_z() { return threadIdx.z; }
HW_FN unsigned __builtin_amdgcn_workgroup_id_x() { return blockIdx.x; }
HW_FN unsigned __builtin_amdgcn_workgroup_id_y() { return blockIdx.y; }
HW_FN unsigned __builtin_amdgcn_workgroup_id_z() { return blockIdx.z; }
HW_FN unsigned __builtin_amdgcn_wavefrontsize() { return HW_WAVE; }

HW_FN hw_u64 __ballot(int predicate) { return hw_w_ballot(0, predicate != 0); }
HW_FN hw_u64 __activemask() { return hw_w_ballot(0, 1); }
HW_FN int __any(int predicate) { return hw_w_ballot(0, predicate != 0) != 0; }
HW_FN int __all(int predicate) { return hw_w_ballot(0, predicate == 0) == 0; }
HW_FN hw_u64 __builtin_amdgcn_ballot_w64(bool predicate) { return hw_w_ballot(0, predicate); }
HW_FN unsigned __builtin_amdgcn_ballot_w32(bool predicate) { return (unsigned)hw_w_ballot(0, predicate); }
HW_FN hw_u64 __builtin_amdgcn_read_exec() { return hw_w_ballot(0, 1); }

// Reading a lane that is not there, has ended or is elsewhere gives the launch's poison.
template <class HwT> HW_FN HwT hw_from_lane(HwT value, unsigned lane) {
    return hw_unpack<HwT>(hw_w_perm(0, hw_pack(value), lane, hw_poison));
}
HW_FN int hw_segment(int width) { return (int)hw_lane & ~(width - 1); }
template <class HwT> HW_FN HwT __shfl(HwT value, int lane, int width = HW_WAVE) {
    return hw_from_lane(value, (unsigned)(hw_segment(width) + (lane & (width - 1))));
}
template <class HwT> HW_FN HwT __shfl_up(HwT value, unsigned delta, int width = HW_WAVE) {
    int lane = (int)hw_lane - (int)delta;
    return hw_from_lane(value, lane < hw_segment(width) ? hw_lane : (unsigned)lane);
}
template <class HwT> HW_FN HwT __shfl_down(HwT value, unsigned delta, int width = HW_WAVE) {
    unsigned inside = hw_lane & (unsigned)(width - 1);
    return hw_from_lane(value, inside + delta >= (unsigned)width ? hw_lane : hw_lane + delta);
}
template <class HwT> HW_FN HwT __shfl_xor(HwT value, int mask, int width = HW_WAVE) {
    int lane = (int)hw_lane ^ mask;
    return hw_from_lane(value, lane >= hw_segment(width) + width ? hw_lane : (unsigned)lane);
}
template <class HwT> HW_FN HwT __shfl_sync(hw_u64, HwT v, int lane, int width = HW_WAVE) { return __shfl(v, lane, width); }
template <class HwT> HW_FN HwT __shfl_up_sync(hw_u64, HwT v, unsigned d, int width = HW_WAVE) { return __shfl_up(v, d, width); }
template <class HwT> HW_FN HwT __shfl_down_sync(hw_u64, HwT v, unsigned d, int width = HW_WAVE) {
    return __shfl_down(v, d, width);
}
template <class HwT> HW_FN HwT __shfl_xor_sync(hw_u64, HwT v, int mask, int width = HW_WAVE) {
    return __shfl_xor(v, mask, width);
}
HW_FN hw_u64 __ballot_sync(hw_u64 mask, int predicate) { return __ballot(predicate) & mask; }
HW_FN int __any_sync(hw_u64 mask, int predicate) { return (__ballot(predicate) & mask) != 0; }
HW_FN int __all_sync(hw_u64 mask, int predicate) { return (__ballot(!predicate) & mask) == 0; }
template <class HwT> HW_FN hw_u64 __match_any(HwT value) {
    for (;;) {
        bool same = hw_w_first(0, hw_pack(value)) == hw_pack(value);
        hw_u64 group = hw_w_ballot(0, same);
        if (same) return group;
    }
}
template <class HwT> HW_FN hw_u64 __match_any_sync(hw_u64 mask, HwT value) { return __match_any(value) & mask; }

template <class HwT> HW_FN HwT __builtin_amdgcn_readfirstlane(HwT value) { return hw_unpack<HwT>(hw_w_first(0, hw_pack(value))); }
template <class HwT> HW_FN HwT __builtin_amdgcn_readlane(HwT value, int lane) {
    return hw_from_lane(value, (unsigned)lane & (HW_WAVE - 1));
}
HW_FN int __builtin_amdgcn_ds_bpermute(int byte_address, int value) {
    return (int)hw_w_perm(0, (unsigned)value, ((unsigned)byte_address >> 2) & (HW_WAVE - 1), 0);
}
HW_FN int __builtin_amdgcn_ds_permute(int byte_address, int value) {
    return (int)hw_w_push(0, (unsigned)value, ((unsigned)byte_address >> 2) & (HW_WAVE - 1));
}
HW_FN int __builtin_amdgcn_ds_swizzle(int value, int pattern) {
    unsigned lane = hw_lane, from;
    if (pattern & 0x8000) from = (lane & ~3u) + (((unsigned)pattern >> (2 * (lane & 3))) & 3);
    else from = (lane & ~31u) + ((((lane & 31) & (unsigned)pattern) | ((unsigned)pattern >> 5 & 31)) ^ ((unsigned)pattern >> 10 & 31));
    return (int)hw_w_perm(0, (unsigned)value, from, 0);
}

// Data-parallel primitives: the source lane of each control word, or none (64).
HW_FN unsigned hw_dpp_source(unsigned control) {
    unsigned lane = hw_lane, row = lane & ~15u, at = lane & 15u, n = control & 15u;
    if (control < 0x100) return (lane & ~3u) + ((control >> (2 * (lane & 3))) & 3);
    if (control < 0x110) return at + n < 16 ? lane + n : 64;
    if (control < 0x120) return at >= n ? lane - n : 64;
    if (control < 0x130) return row + ((at - n) & 15);
    if (control == 0x130) return lane + 1 < HW_WAVE ? lane + 1 : 64;
    if (control == 0x134) return (lane + 1) % HW_WAVE;
    if (control == 0x138) return lane ? lane - 1 : 64;
    if (control == 0x13c) return (lane + HW_WAVE - 1) % HW_WAVE;
    if (control == 0x140) return row + 15 - at;
    if (control == 0x141) return (lane & ~7u) + 7 - (lane & 7);
    if (control == 0x142) return row ? row - 1 : 64;
    if (control == 0x143) return lane >= 32 ? 31 : 64;
    if (control >= 0x150 && control < 0x160) return row + n;
    if (control >= 0x160 && control < 0x170) return row + (at ^ n);
    return 64;
}
HW_FN int __builtin_amdgcn_update_dpp(int old, int value, int control, int row_mask, int bank_mask, bool zero) {
    unsigned from = hw_dpp_source((unsigned)control), lane = hw_lane;
    hw_u64 otherwise = from == 64 && zero ? 0 : (unsigned)old;
    int got = (int)hw_w_perm(0, (unsigned)value, from, otherwise);
    bool on = (row_mask >> (lane / 16) & 1) && (bank_mask >> (lane / 4 % 4) & 1);
    return on ? got : old;
}
HW_FN int __builtin_amdgcn_mov_dpp(int value, int control, int row_mask, int bank_mask, bool zero) {
    return __builtin_amdgcn_update_dpp(0, value, control, row_mask, bank_mask, zero);
}

#include "cpu_atomic.h"
#include "cpu_mfma.h"
