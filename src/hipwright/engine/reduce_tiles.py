"""Device functions that combine: moments, exponentials, over lanes, blocks, columns and teams of blocks; scans.

How many threads share a row, and what is kept of it, the templates decide (docs/engine-templates.md).
"""

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
    for (int k = 0; k < SIZE; ++k) sum += exp(seen[k] - shift);
    sum += state.sum == T(0) ? T(0) : state.sum * exp(shift_of(state.top) - shift);
    return {sum == sum ? top : sum, sum};
}

template <typename T, int SIZE>
__device__ Exponentials<T> with_tile(Exponentials<T> state, const T (&v)[SIZE], int count) {
    return count == SIZE ? exponentials_of<true>(state, v, count) : exponentials_of<false>(state, v, count);
}
"""
EXPONENTIALS = EXPONENTIALS_STATE + EXPONENTIALS_TILE
EXPONENTIALS_APART = _of_products(
    EXPONENTIALS_TILE, "maximum", "seen[k] - shift", exponentials_of="exponentials_of_products",
    with_tile="exponentials_with",
)  # fmt: skip

SHUFFLE_EXPONENTIALS = """template <typename T>
__device__ Exponentials<T> shuffle_xor(Exponentials<T> v, int distance) {
    return {__shfl_xor(v.top, distance), __shfl_xor(v.sum, distance)};
}
"""

BLOCK_REDUCE = """// Combine one value per thread over the block; every thread gets the result. Whole waves only.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T block_reduce(T v, Op op) {
    for (int distance = warpSize / 2; distance > 0; distance >>= 1) v = op(v, shuffle_xor(v, distance));
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ T partial[BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;  // a power of two, at most a wave
    v = partial[threadIdx.x % waves];
    for (int distance = waves / 2; distance > 0; distance >>= 1) {
        const T other = shuffle_xor(v, distance);
        v = threadIdx.x & distance ? op(other, v) : op(v, other);  // in one order, so all threads have the same bits
    }
    return v;
}
"""

BLOCK_REDUCE_EACH = """// The same for N values at once: they wait together.
template <int BLOCK_SIZE, int N, typename T, typename Op>
__device__ void block_reduce_each(T (&v)[N], Op op) {
    for (int distance = warpSize / 2; distance > 0; distance >>= 1) {
#pragma unroll
        for (int n = 0; n < N; ++n) v[n] = op(v[n], shuffle_xor(v[n], distance));
    }
    if (BLOCK_SIZE <= warpSize) return;
    __shared__ T partial[N][BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
#pragma unroll
    for (int n = 0; n < N; ++n)
        if (threadIdx.x % warpSize == 0) partial[n][threadIdx.x / warpSize] = v[n];
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = partial[n][threadIdx.x % waves];
    for (int distance = waves / 2; distance > 0; distance >>= 1) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const T other = shuffle_xor(v[n], distance);
            v[n] = threadIdx.x & distance ? op(other, v[n]) : op(v[n], other);
        }
    }
}
"""

COLUMN_REDUCE = """// A value of another lane, word by word: states of any type.
template <typename T>
__device__ T lane_word_xor(T v, int distance) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &v, sizeof(T));
#pragma unroll
    for (int k = 0; k < (int)sizeof(T) / 4; ++k) words[k] = __shfl_xor(words[k], distance);
    __builtin_memcpy(&v, words, sizeof(T));
    return v;
}

// Combine the N columns of each thread down the block; every thread gets the results. First the rows of a wave by
// shuffles, then those of all waves: a thread goes down one column.
template <int BLOCK_SIZE, int WIDTH, int N, typename T, typename Op>
__device__ void column_reduce(T (&v)[N], Op op) {
    if (BLOCK_SIZE <= WIDTH) return;
    constexpr int ROWS = WIDTH < 32 ? BLOCK_SIZE / 32 : BLOCK_SIZE / WIDTH;  // at most; half as many with waves of 64
    constexpr int FIT = 32768 / (ROWS * WIDTH * (int)sizeof(T)), SOME = FIT < 1 ? 1 : FIT < N ? FIT : N;
    __shared__ T partial[ROWS][WIDTH * SOME];
#pragma unroll
    for (int j = 0; j < N; ++j)
        for (int distance = WIDTH; distance < warpSize; distance *= 2) v[j] = op(v[j], lane_word_xor(v[j], distance));
    const int step = WIDTH < warpSize ? warpSize : WIDTH, rows = BLOCK_SIZE / step;
    const int row = threadIdx.x / step, column = threadIdx.x % WIDTH;
#pragma unroll
    for (int first = 0; first < N; first += SOME) {
        __syncthreads();  // an earlier use of `partial` has been read
        if ((int)threadIdx.x % step < WIDTH) {
#pragma unroll
            for (int j = 0; j < SOME; ++j)
                if (first + j < N) partial[row][column * SOME + j] = v[first + j];
        }
        __syncthreads();
        for (int k = threadIdx.x; k < WIDTH * SOME; k += BLOCK_SIZE) {
            T all = partial[0][k];
            for (int w = 1; w < rows; ++w) all = op(all, partial[w][k]);
            partial[0][k] = all;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < SOME; ++j)
            if (first + j < N) v[first + j] = partial[0][column * SOME + j];
    }
}
"""

KNOWN_WITHIN = """// Is n at most `most`? On AMD only where the compiler knows it: tests of the elements of two rows
// in registers, of a length unknown, spilled hundreds of registers.
template <typename I>
__device__ __forceinline__ bool known_within(I n, I most) {
#ifdef __AMDGCN__
    return __builtin_constant_p(n) && n <= most;
#else
    return n <= most;
#endif
}
"""

TEAM_MEET = """// The blocks of a team wait for one another; each has written its part, and then reads the others'.
__device__ void team_meet(int* arrived, int expected) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < expected) {
        }
    }
    __syncthreads();
    __threadfence();
}
"""

TEAM_LAST = """// True in the block of a team that came last: it reads what all have written.
__device__ bool team_last(int* arrived, int team) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1) == team - 1;
    }
    __syncthreads();
    __threadfence();
    return last;
}
"""

TEAM_COLLECT = """// The parts of a team, combined in the same order by every 32 lanes of its blocks: no wave waits.
template <typename T, typename Op>
__device__ T team_collect(const T* parts, int team, T start, Op op) {
    for (int k = threadIdx.x % 32; k < team; k += 32) start = op(start, parts[k]);
    return lane_reduce<32>(start, op);
}
"""

TAKE_TICKET = """// Blocks take turns in the order in which they start: who waits, waits for blocks that run.
__device__ int take_ticket(int* counter) {
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(counter, 1);
    __syncthreads();
    return ticket;
}
"""

SCAN_TILE = """// Inclusive scan of the packs of a wave, lane after lane, pack after pack; returns the wave's total.
template <int ITEMS, int N, typename T, typename Op>
__device__ T scan_tile(T* v, T total, Op op) {
    const int lane = threadIdx.x % warpSize;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
#pragma unroll
        for (int j = 1; j < N; ++j) v[k * N + j] = op(v[k * N + j - 1], v[k * N + j]);
        T sum = v[k * N + N - 1];
        for (int distance = 1; distance < warpSize; distance <<= 1) {
            const T lower = __shfl_up(sum, distance);
            if (lane >= distance) sum = op(lower, sum);
        }
        const T lower = __shfl_up(sum, 1);
        const T before = lane > 0 ? op(total, lower) : total;
#pragma unroll
        for (int j = 0; j < N; ++j) v[k * N + j] = op(before, v[k * N + j]);
        total = op(total, __shfl(sum, warpSize - 1));
    }
    return total;
}
"""

JOIN_WAVES = """// Adds the totals of the block's earlier waves to `before`, of all waves to `all`; `flip` alternates.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ void join_waves(T total, int flip, Op op, T& before, T& all) {
    __shared__ T partial[2][BLOCK_SIZE / 32];
    const int wave = threadIdx.x / warpSize;
    if (threadIdx.x % warpSize == warpSize - 1) partial[flip][wave] = total;
    __syncthreads();
    for (int w = 0; w < BLOCK_SIZE / warpSize; ++w) {
        if (w < wave) before = op(before, partial[flip][w]);
        all = op(all, partial[flip][w]);
    }
}
"""

SUM_BEFORE = """// What the tiles before this one come to. Tiles form groups of BLOCK_SIZE: sums[0 .. tiles) are theirs,
// the second half holds what comes before each group. Blocks wait for earlier tickets only, and add in one order.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T sum_before(T total, T* sums, int* flags, int tiles, int tile, T none, Op op) {
    __shared__ T carried;
    const int group = tile / BLOCK_SIZE, place = tile % BLOCK_SIZE, first = tile - place;
    if (threadIdx.x == 0) {
        sums[tile] = total;
        __threadfence();
        atomicExch(flags + tile, 1);
    }
    T before = none;
    if (threadIdx.x < place) {
        while (atomicAdd(flags + first + threadIdx.x, 0) == 0) {
        }
        __threadfence();
        before = sums[first + threadIdx.x];
    }
    before = block_reduce<BLOCK_SIZE>(before, op);
    if (threadIdx.x == 0) {
        carried = none;
        if (group > 0) {
            while (atomicAdd(flags + tiles + group, 0) == 0) {
            }
            __threadfence();
            carried = sums[tiles + group];
        }
        if (place == BLOCK_SIZE - 1 && tile + 1 < tiles) {
            sums[tiles + group + 1] = op(op(carried, before), total);
            __threadfence();
            atomicExch(flags + tiles + group + 1, 1);
        }
    }
    __syncthreads();
    return op(carried, before);
}
"""

PACKS_TESTED = """// Is a test before each pack worth it? On AMD only where the size is a constant: else its branches
// cost registers.
template <typename I>
__device__ __forceinline__ bool packs_tested(I n) {
#ifdef __AMDGCN__
    return __builtin_constant_p(n);
#else
    return true;
#endif
}
"""
