// Maximum and minimum with their index: states, operators and reductions over a block.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/block_reduce.h>

// The state of argmax and argmin. `index` is the largest of its type as long as no value was better than the start.
template <typename T, typename I>
struct IndexedValue {
    T value;
    I index;
    // The index, or 0 where no value was better than the start: all values then equal it, and the first one counts.
    __device__ long first() const {
        return index == (I)(sizeof(I) == 4 ? 0x7fffffffL : 0x7fffffffffffffffL) ? 0 : index;
    }
};

template <typename T, typename I>
__device__ IndexedValue<T, I> shuffle_xor(IndexedValue<T, I> v, int distance) {
    return {__shfl_xor(v.value, distance), __shfl_xor(v.index, distance)};
}

// Selects the larger value; NaN counts as larger than any number, and of equal values the lower index wins.
struct ArgMax {
    template <typename T, typename I>
    __device__ IndexedValue<T, I> operator()(IndexedValue<T, I> a, IndexedValue<T, I> b) const {
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        const bool same = a.value == b.value || (a_nan && b_nan);
        const bool second = same ? b.index < a.index : !a_nan && (b_nan || b.value > a.value);
        return {second ? b.value : a.value, second ? b.index : a.index};
    }
    // Includes the value at an index above all of `best`: an equal value cannot replace it, so no index is compared.
    template <typename T, typename I>
    __device__ void update(IndexedValue<T, I>& best, decltype(best.value) value, decltype(best.index) index) const {
        const bool better = !(value <= best.value) && best.value == best.value;
        best.value = better ? value : best.value;
        best.index = better ? index : best.index;
    }
};

// Selects the smaller value; NaN counts as smaller than any number, and of equal values the lower index wins.
struct ArgMin {
    template <typename T, typename I>
    __device__ IndexedValue<T, I> operator()(IndexedValue<T, I> a, IndexedValue<T, I> b) const {
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        const bool same = a.value == b.value || (a_nan && b_nan);
        const bool second = same ? b.index < a.index : !a_nan && (b_nan || b.value < a.value);
        return {second ? b.value : a.value, second ? b.index : a.index};
    }
    // Includes the value at an index above all of `best`: an equal value cannot replace it, so no index is compared.
    template <typename T, typename I>
    __device__ void update(IndexedValue<T, I>& best, decltype(best.value) value, decltype(best.index) index) const {
        const bool better = !(value >= best.value) && best.value == best.value;
        best.value = better ? value : best.value;
        best.index = better ? index : best.index;
    }
};

// Reduces over a wave by NVIDIA's integer reduction (redux.sync): first the best key, an integer in the order of the
// values with NaN as the best, then the lowest index that has it. Elsewhere returns v.
__device__ __forceinline__ IndexedValue<float, int> wave_reduce(IndexedValue<float, int> v, ArgMax) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned bits = __float_as_uint(v.value + 0.0f);  // -0 becomes 0
    const unsigned order = bits >> 31 ? ~bits : bits | 0x80000000u;
    const unsigned key = v.value != v.value ? 0xffffffffu : order;
    const unsigned best = __reduce_max_sync(0xffffffffu, key);
    const unsigned found = best;
    v.value = __uint_as_float(found >> 31 ? found ^ 0x80000000u : ~found);
    v.index = __reduce_min_sync(0xffffffffu, key == best ? v.index : 0x7fffffff);
#endif
    return v;
}

// Reduces over a wave by NVIDIA's integer reduction (redux.sync): first the best key, an integer in the order of the
// values with NaN as the best, then the lowest index that has it. Elsewhere returns v.
__device__ __forceinline__ IndexedValue<float, int> wave_reduce(IndexedValue<float, int> v, ArgMin) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned bits = __float_as_uint(v.value + 0.0f);  // -0 becomes 0
    const unsigned order = bits >> 31 ? ~bits : bits | 0x80000000u;
    const unsigned key = v.value != v.value ? 0xffffffffu : ~order;
    const unsigned best = __reduce_max_sync(0xffffffffu, key);
    const unsigned found = ~best;
    v.value = __uint_as_float(found >> 31 ? found ^ 0x80000000u : ~found);
    v.index = __reduce_min_sync(0xffffffffu, key == best ? v.index : 0x7fffffff);
#endif
    return v;
}

template <int BLOCK_SIZE>
__device__ IndexedValue<float, int> block_reduce(IndexedValue<float, int> v, ArgMax op) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    v = wave_reduce(v, op);
    if (BLOCK_SIZE <= 32) return v;
    __shared__ IndexedValue<float, int> partial[BLOCK_SIZE / 32];
    __syncthreads();  // `partial` may still be read from the previous call
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    return wave_reduce(partial[threadIdx.x % (BLOCK_SIZE / 32)], op);
#else
    return block_reduce<BLOCK_SIZE, IndexedValue<float, int>, ArgMax>(v, op);
#endif
}

template <int BLOCK_SIZE>
__device__ IndexedValue<float, int> block_reduce(IndexedValue<float, int> v, ArgMin op) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    v = wave_reduce(v, op);
    if (BLOCK_SIZE <= 32) return v;
    __shared__ IndexedValue<float, int> partial[BLOCK_SIZE / 32];
    __syncthreads();  // `partial` may still be read from the previous call
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    return wave_reduce(partial[threadIdx.x % (BLOCK_SIZE / 32)], op);
#else
    return block_reduce<BLOCK_SIZE, IndexedValue<float, int>, ArgMin>(v, op);
#endif
}
