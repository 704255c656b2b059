"""Device functions that move a thread's share of a row, and states that a reduction builds in one pass over memory.

A *tile* is what one thread takes at a time: ITEMS packs of N neighbours, all asked for before the first is used, so
that several 16-byte loads per thread are in flight. Tails are guarded element by element; rows whose address suits no
wide access are read element by element on NVIDIA, which needs aligned vectors, and in packs on AMD, which does not.
"""

from __future__ import annotations

from hipwright.engine.run_tiles import RUNS

TILE = """// N neighbours; as wide an access as the device has.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T v[N];
};

// Does the address suit packs? AMD reads and writes them anywhere.
template <typename T, int N>
__device__ bool packs_fit(const T* p) {
#ifdef __AMDGCN__
    return true;
#else
    return N == 1 || (size_t)p % alignof(Pack<T, N>) == 0;
#endif
}

template <int N, typename T>
__device__ void read_pack(const T* p, T* v) {
#ifdef __AMDGCN__
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = pack.v[k];
#endif
}

template <int N, typename T>
__device__ void write_pack(T* p, const T* v) {
#ifdef __AMDGCN__
    __builtin_memcpy(p, v, N * sizeof(T));
#else
    Pack<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.v[k] = v[k];
    *reinterpret_cast<Pack<T, N>*>(p) = pack;
#endif
}

// What one thread takes at a time: SIZE elements in registers.
template <typename T, int SIZE>
struct Tile {
    T v[SIZE];
};
"""

WRITE_HALVES = """// Floats leave as half types two at a time: one instruction for both where the device has it.
template <int N>
__device__ void write_pack(TYPE* p, const float* v) {
    if (N == 1) {
        p[0] = TYPE(v[0]);
        return;
    }
    PAIR pairs[(N + 1) / 2];
#pragma unroll
    for (int k = 0; k + 1 < N; k += 2) pairs[k / 2] = CONVERT(float2{v[k], v[k + 1]});
    write_pack<(N + 1) / 2>(reinterpret_cast<PAIR*>(p), pairs);
}
"""

WRITE_HALF = WRITE_HALVES.replace("TYPE", "__half").replace("PAIR", "__half2").replace("CONVERT", "__float22half2_rn")
WRITE_BFLOAT16 = (
    WRITE_HALVES.replace("TYPE", "__hip_bfloat16").replace("PAIR", "__hip_bfloat162")
    .replace("CONVERT", "__float22bfloat162_rn")
)  # fmt: skip

LOAD_WORDS = """// load_tile for types of two bytes: whether the address suits packs or not, pairs come in words, which
// cost one instruction an element less than halves that two loads could have made.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_words(const T* __restrict__ p, I base, I step, I n, bool full) {
    unsigned words[(ITEMS * N + 1) / 2];
    const bool fit = packs_fit<T, N>(p), uncut = (((n - base) | step) & (N - 1)) == 0;  // no pack lies across n
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (uncut && !full && at >= n) continue;
        if (fit && (full || uncut || at + N <= n)) {
            read_pack<(N + 1) / 2>(reinterpret_cast<const unsigned*>(p + at), words + k * N / 2);
        } else {
#pragma unroll
            for (int j = 0; j < N; j += 2) {
                unsigned short pair[2] = {0, 0};
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    if (!full && at + j + i >= n) continue;
                    const T one = p[at + j + i];
                    __builtin_memcpy(pair + i, &one, 2);
                }
                words[(k * N + j) / 2] = pair[0] | (unsigned)pair[1] << 16;
            }
        }
    }
    Tile<T, ITEMS * N> tile;
#pragma unroll
    for (int k = 0; k < ITEMS * N; ++k) {
        const unsigned short bits = words[k / 2] >> k % 2 * 16;
        __builtin_memcpy(tile.v + k, &bits, 2);
    }
    return tile;
}
"""

LOAD_TILE = """// ITEMS packs of p[0 .. n), the first at `base`, `step` elements apart; all are asked for at once. Where
// tiles are `full`, as they may be known to be, n cuts none short.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_tile(const T* __restrict__ p, I base, I step, I n, bool full = false) {
    if (sizeof(T) == 2 && N % 2 == 0) return load_words<ITEMS, N>(p, base, step, n, full);
    Tile<T, ITEMS * N> tile;
    const bool fit = packs_fit<T, N>(p), uncut = (((n - base) | step) & (N - 1)) == 0;  // no pack lies across n
    if (fit && (full || uncut || base + (ITEMS - 1) * step + N <= n)) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k)
            if (full || base + k * step < n) read_pack<N>(p + (base + k * step), tile.v + k * N);
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (fit && (full || at + N <= n)) {
            read_pack<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) tile.v[k * N + j] = p[at + j];
        }
    }
    return tile;
}
"""

LOAD_ODD = """// As load_tile where rows begin anywhere: a pack off its border is made of the two in which it lies.
template <int N, typename T>
__device__ void read_across(const T* p, T* v) {
    const size_t off = (size_t)p % 16;
    const auto* const packs = reinterpret_cast<const Pack<unsigned, 4>*>(p - off / sizeof(T));
    const Pack<unsigned, 4> left = packs[0], right = packs[1];
    unsigned word[9] = {}, out[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) word[k] = left.v[k], word[k + 4] = right.v[k];
#pragma unroll
    for (int k = 0; k < 6; ++k) word[k] = off & 8 ? word[k + 2] : word[k];
#pragma unroll
    for (int k = 0; k < 5; ++k) word[k] = off & 4 ? word[k + 1] : word[k];
#pragma unroll
    for (int k = 0; k < 4; ++k)
        out[k] = (unsigned)(((unsigned long long)word[k + 1] << 32 | word[k]) >> (off % 4 * 8));
    __builtin_memcpy(v, out, 16);
}

template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_odd(const T* __restrict__ p, I base, I step, I n, bool full = false) {
#ifdef __AMDGCN__
    return load_tile<ITEMS, N>(p, base, step, n, full);
#else
    if constexpr (N * sizeof(T) != 16) {
        return load_tile<ITEMS, N>(p, base, step, n, full);
    } else {
        Tile<T, ITEMS * N> tile;
        if (base >= N && base + (ITEMS - 1) * step + 2 * N <= n) {  // both packs lie within the row
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) read_across<N>(p + (base + k * step), tile.v + k * N);
            return tile;
        }
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I at = base + k * step;
            if (at >= N && at + 2 * N <= n) {
                read_across<N>(p + at, tile.v + k * N);
            } else {
#pragma unroll
                for (int j = 0; j < N; ++j)
                    if (at + j < n) tile.v[k * N + j] = p[at + j];
            }
        }
        return tile;
    }
#endif
}
"""

STORE_TILE = """template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_tile(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile, bool full = false) {
    const bool fit = packs_fit<T, N>(p), uncut = (((n - base) | step) & (N - 1)) == 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        if (k * step >= n) continue;  // no thread's; of a known n no text is left
        const I at = base + k * step;
        if (fit && (full || (uncut ? at < n : at + N <= n))) {
            write_pack<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) p[at + j] = T(tile.v[k * N + j]);
        }
    }
}
"""

WHOLE_PACKS = """// Does each of a thread's packs lie before n or behind it? Known when compiling where N divides n.
template <int ITEMS, int N, typename I>
__device__ bool whole_packs(I base, I step, I n) {
    return n % N == 0 || base + (ITEMS - 1) * step + N <= n;
}

// As load_tile for whole packs: no test an element, and half types stay together. Zeros behind n.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_packs(const T* __restrict__ p, I base, I step, I n) {
    Tile<T, ITEMS * N> tile = {};
    const bool fit = packs_fit<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        if (fit) {
            read_pack<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) tile.v[k * N + j] = p[at + j];
        }
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename I>
__device__ void store_packs(T* __restrict__ p, I base, I step, I n, const Tile<T, ITEMS * N>& tile) {
    const bool fit = packs_fit<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        if (fit) {
            write_pack<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) p[at + j] = tile.v[k * N + j];
        }
    }
}
"""

PACKS_BACK = """// As load_packs and store_packs for a row walked from its end, where p is; on the borders of packs.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_packs_back(const T* __restrict__ p, I base, I step, I n) {
    Tile<T, ITEMS * N> tile = {};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        T pack[N];
        read_pack<N>(p - (at + (N - 1)), pack);
#pragma unroll
        for (int j = 0; j < N; ++j) tile.v[k * N + j] = pack[N - 1 - j];
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename I>
__device__ void store_packs_back(T* __restrict__ p, I base, I step, I n, const Tile<T, ITEMS * N>& tile) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        T pack[N];
#pragma unroll
        for (int j = 0; j < N; ++j) pack[N - 1 - j] = tile.v[k * N + j];
        write_pack<N>(p - (at + (N - 1)), pack);
    }
}
"""

TILE_COUNT = """// How many of a thread's elements lie before n; they are the first ones of its tile.
template <int ITEMS, int N, typename I>
__device__ int tile_count(I base, I step, I n, bool full = false) {
    if (full || base + (ITEMS - 1) * step + N <= n) return ITEMS * N;
    int count = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I left = n - base - k * step;
        count += left < 0 ? 0 : (left < N ? (int)left : N);
    }
    return count;
}
"""

LOAD_COLUMNS = """// Packs of `width` <= N neighbouring columns from ITEMS rows (base, base + step, ...) below n;
// rows are `stride` elements apart.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_columns(const T* __restrict__ p, I base, I step, I n, I stride, int width) {
    Tile<T, ITEMS * N> tile;
    const bool fit = width == N && packs_fit<T, N>(p) && (N == 1 || packs_fit<T, N>(p + stride));
    if (fit && n > 0) {  // instead of rows that are not there the last once more
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I row = base + k * step;
            read_pack<N>(p + (row < n ? row : n - 1) * stride, tile.v + k * N);
        }
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = base + k * step;
        if (row >= n) continue;
        if (fit) {
            read_pack<N>(p + row * stride, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) tile.v[k * N + j] = p[row * stride + j];
        }
    }
    return tile;
}
"""

STORE_COLUMNS = """template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_columns(T* __restrict__ p, I base, I step, I n, I stride, int width,
                              const Tile<V, ITEMS * N>& tile) {
    const bool fit = width == N && packs_fit<T, N>(p) && (N == 1 || packs_fit<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = base + k * step;
        if (row >= n) continue;
        if (fit) {
            write_pack<N>(p + row * stride, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) p[row * stride + j] = T(tile.v[k * N + j]);
        }
    }
}
"""

MOMENTS = """// How many, their mean as one of them and an offset (so that a large mean costs no digits), and the sum of
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

EXPONENTIALS = """// The maximum and the sum of exp(x - maximum), in one pass (Milakov & Gimelshein 2018); an infinite
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

STRUCTURES = {
    "Tile": TILE, "Moments": MOMENTS, "moments_lanes": MOMENTS_LANES, "moments_block": MOMENTS_BLOCK,
    "Exponentials": EXPONENTIALS, "shuffle_exponentials": SHUFFLE_EXPONENTIALS,
    "write_float16": WRITE_HALF, "write_bfloat16": WRITE_BFLOAT16, "load_words": LOAD_WORDS,
    "load_tile": LOAD_TILE, "load_odd": LOAD_ODD,
    "store_tile": STORE_TILE,
    "tile_count": TILE_COUNT, "whole_packs": WHOLE_PACKS, "packs_back": PACKS_BACK, "load_columns": LOAD_COLUMNS,
    "store_columns": STORE_COLUMNS, "known_within": KNOWN_WITHIN,
    "block_reduce": BLOCK_REDUCE, "column_reduce": COLUMN_REDUCE, "team_meet": TEAM_MEET, "team_last": TEAM_LAST,
    "team_collect": TEAM_COLLECT, "take_ticket": TAKE_TICKET, "scan_tile": SCAN_TILE, "join_waves": JOIN_WAVES,
    "sum_before": SUM_BEFORE, **RUNS,
}  # fmt: skip
"""In the order in which a program holds them."""

NEEDS = {
    "load_tile": ("Tile", "load_words"), "load_odd": ("Tile", "load_tile", "load_words"),
    "store_tile": ("Tile",), "load_columns": ("Tile",), "store_columns": ("Tile",),
    "whole_packs": ("Tile",), "packs_back": ("Tile",),
    "write_float16": ("Tile",), "write_bfloat16": ("Tile",), **dict.fromkeys(RUNS, ("Tile",)),
    "moments_lanes": ("Moments",), "moments_block": ("Moments", "moments_lanes"),
    "Exponentials": ("shuffle_exponentials", "nan_max"),
    "team_collect": ("lane_reduce",), "sum_before": ("block_reduce",),
}  # fmt: skip
