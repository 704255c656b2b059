"""Device functions of states that one pass makes: moments, and a maximum with the sum of its exponentials."""

from __future__ import annotations


def _of_products(tile: str, statistic: str, difference: str, **names: str) -> str:
    """What takes a tile of products: functions and locals by other names, the difference rounded as written."""
    text = tile[tile.index("template") :]
    for name, other in names.items():
        text = text.replace(name, other)
    assert difference in text
    written = text.replace(difference, f"apart({difference.replace(' - ', ', ')})")
    return f"// The same of products, which the {statistic} was rounded from.\n{written}"


MOMENTS_STATE = """\
// How many, their mean as one of them and an offset (so that a large mean costs no digits), and the sum of
// their squared distances from it.
template <typename T>
struct Moments {
    T count, pivot, offset, squares;
    __device__ T mean() const { return pivot + offset; }
    __device__ T rest() const { return pivot - mean() + offset; }  // what the rounded mean leaves over
};

__device__ float share_of(float part, float all) {
    return __fdividef(part, all);  // a bit short of exact, as the sums are
}
__device__ double share_of(double part, double all) {
    return part / all;
}

// The moments of two sets together (Chan, Golub & LeVeque 1983).
struct Together {
    template <typename T>
    __device__ Moments<T> operator()(Moments<T> a, Moments<T> b) const {
        if (b.count == T(0)) return a;
        if (a.count == T(0)) return b;
        const T count = a.count + b.count, share = share_of(b.count, count);
        const T apart = b.pivot - a.pivot + (b.offset - a.offset), offset = a.offset + apart * share;
        const T mean = a.pivot + offset;  // the next pivot: a far one would cost the sum its digits
        return {count, mean, a.pivot - mean + offset, a.squares + b.squares + apart * apart * a.count * share};
    }
};
"""

MOMENTS_TILE = """
// The moments with a tile's first `count` values: their mean, then the distances from it (corrected two-pass
// algorithm, Chan, Golub & LeVeque 1983). One of the values would do in its place, but for a far one's rounding.
template <typename T, int SIZE>
__device__ Moments<T> with_tile(Moments<T> state, const T (&v)[SIZE], int count) {
    if (count == 0) return state;
    T sum = T(0), rest = T(0), squares = T(0);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += k < count ? v[k] : T(0);
    const T pivot = share_of(sum, T(count));
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        const T apart = k < count ? v[k] - pivot : T(0);
        rest += apart;
        squares += apart * apart;
    }
    const T offset = share_of(rest, T(count));
    return Together()(state, Moments<T>{T(count), pivot, offset, squares - rest * offset});
}
"""
MOMENTS = MOMENTS_STATE + MOMENTS_TILE
MOMENTS_APART = _of_products(MOMENTS_TILE, "mean", "v[k] - pivot", with_tile="moments_with", apart="distance")

MOMENTS_LANES = """// The moments of `lanes` neighbouring lanes together: a sum for the mean, then those of the
// distances from it, as in a tile.
template <typename T>
__device__ Moments<T> moments_of_lanes(Moments<T> v, int lanes) {
    T count = v.count, sum = v.count == T(0) ? T(0) : v.count * v.mean();
    for (int distance = lanes / 2; distance > 0; distance >>= 1) {
        count += __shfl_xor(count, distance);
        sum += __shfl_xor(sum, distance);
    }
    const T pivot = count == T(0) ? T(0) : share_of(sum, count), apart = v.pivot - pivot + v.offset;
    T rest = v.count == T(0) ? T(0) : v.count * apart, squares = v.count == T(0) ? T(0) : v.squares + apart * rest;
    for (int distance = lanes / 2; distance > 0; distance >>= 1) {
        rest += __shfl_xor(rest, distance);
        squares += __shfl_xor(squares, distance);
    }
    const T offset = count == T(0) ? T(0) : share_of(rest, count);
    return {count, pivot, offset, squares - rest * offset};
}

template <int LANE_COUNT, typename T>
__device__ Moments<T> lane_reduce(Moments<T> v, Together) {
    return moments_of_lanes(v, LANE_COUNT);
}
"""

MOMENTS_BLOCK = """template <int BLOCK_SIZE, typename T>
__device__ Moments<T> block_reduce(Moments<T> v, Together) {
    v = moments_of_lanes(v, warpSize);
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ Moments<T> partial[BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
    return moments_of_lanes(partial[threadIdx.x % waves], waves);
}
"""

EXPONENTIALS_STATE = """\
// The maximum and the sum of exp(x - maximum), in one pass (Milakov & Gimelshein 2018); an infinite
// maximum shifts nothing.
template <typename T>
struct Exponentials {
    T top, sum;
    __device__ T total() const { return sum + (top - top); }  // NaN where the maximum is not finite, as exp(x - top) is
};

template <typename T>
__device__ T shift_of(T top) {
    return top - top == T(0) ? top : T(0);
}

struct Rescaled {
    template <typename T>
    __device__ Exponentials<T> operator()(Exponentials<T> a, Exponentials<T> b) const {
        const T top = nan_max(a.top, b.top), shift = shift_of(top);
        const T left = a.sum == T(0) ? T(0) : a.sum * exp(shift_of(a.top) - shift);
        const T right = b.sum == T(0) ? T(0) : b.sum * exp(shift_of(b.top) - shift);
        return {top, left + right};
    }
};
"""

FAST_EXP = """#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
#else
    return __expf(x);
#endif"""
"""exp(x) by one multiplication and one instruction: off by |x| units of float, and 0 below 2^-126."""

EXP_IN_SUM = f"""
// exp(x) as a term of a sum whose largest is 1: off by |x| units of the term, which is exp(-|x|) of the sum.
__device__ float exp_in_sum(float x) {{
{FAST_EXP}
}}
__device__ double exp_in_sum(double x) {{
    return exp(x);
}}
"""

EXPONENTIALS_TILE = """
// With the first `count` values of a tile, all of them in `ALL`. A NaN is in the sum, whatever the maximum makes of it.
template <bool ALL, typename T, int SIZE>
__device__ Exponentials<T> exponentials_of(Exponentials<T> state, const T (&v)[SIZE], int count) {
    T top = state.top, sum = T(0), seen[SIZE];
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        seen[k] = ALL || k < count ? v[k] : -T(INFINITY);
        top = fmax(top, seen[k]);
    }
    const T shift = shift_of(top);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += exp_in_sum(seen[k] - shift);
    sum += state.sum == T(0) ? T(0) : state.sum * exp(shift_of(state.top) - shift);
    return {sum == sum ? top : sum, sum};
}

template <typename T, int SIZE>
__device__ Exponentials<T> with_tile(Exponentials<T> state, const T (&v)[SIZE], int count) {
    return count == SIZE ? exponentials_of<true>(state, v, count) : exponentials_of<false>(state, v, count);
}
"""
EXPONENTIALS = EXPONENTIALS_STATE + EXP_IN_SUM + EXPONENTIALS_TILE
EXPONENTIALS_APART = _of_products(
    EXPONENTIALS_TILE,
    "maximum",
    "seen[k] - shift",
    exponentials_of="exponentials_of_products",
    with_tile="exponentials_with",
)

EXPONENTIALS_BLOCK = """\
// The same of `lanes` neighbouring lanes: their maximum first, so that each rescales once, where step by step
// each would as often as there are steps.
template <typename T>
__device__ Exponentials<T> exponentials_of_lanes(Exponentials<T> v, int lanes) {
    T top = v.top;
    for (int distance = lanes / 2; distance > 0; distance >>= 1) top = nan_max(top, __shfl_xor(top, distance));
    T sum = v.sum == T(0) ? T(0) : v.sum * exp(shift_of(v.top) - shift_of(top));
    for (int distance = lanes / 2; distance > 0; distance >>= 1) sum += __shfl_xor(sum, distance);
    return {top, sum};
}

template <int BLOCK_SIZE, typename T>
__device__ Exponentials<T> block_reduce(Exponentials<T> v, Rescaled) {
    v = exponentials_of_lanes(v, warpSize);
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ Exponentials<T> partial[BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
    return exponentials_of_lanes(partial[threadIdx.x % waves], waves);
}
"""

SHUFFLE_EXPONENTIALS = """template <typename T>
__device__ Exponentials<T> shuffle_xor(Exponentials<T> v, int distance) {
    return {__shfl_xor(v.top, distance), __shfl_xor(v.sum, distance)};
}
"""
