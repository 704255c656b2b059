"""Device functions for rows that are several runs of memory, such as a channel's pixels in each image of a batch.

An index `at` of the row lies at `at / run * stride + at % run`. Where runs are a multiple of a pack, a pack lies inside
one run and is one access; other lengths go element by element. Tiles then hold as many runs as they can, however short.
Rows may also be walked backwards (a flipped scan), and columns in rows that an index picks (a bag of embeddings).
"""

from __future__ import annotations

LOAD_RUNS = """// As load_tile, of a row of runs: element `at` lies at p[at / run * stride + at % run].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_runs(const T* __restrict__ p, I base, I step, I n, I stride, I run,
                                        bool full = false) {
    Tile<T, ITEMS * N> tile;
    const bool fit = N == 1 || (run % N == 0 && packs_fit<T, N>(p) && packs_fit<T, N>(p + stride));
    if (fit && (full || base + (ITEMS - 1) * step < n)) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I at = base + k * step;
            read_pack<N>(p + (at / run * stride + at % run), tile.v + k * N);
        }
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        const T* outer = p + at / run * stride;
        I inner = at % run;
        if (fit && (full || at < n)) {
            read_pack<N>(outer + inner, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (full || at + j < n) tile.v[k * N + j] = outer[inner];
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
    return tile;
}
"""

STORE_RUNS = """template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_runs(T* __restrict__ p, I base, I step, I n, I stride, I run, const Tile<V, ITEMS * N>& tile,
                           bool full = false) {
    const bool fit = N == 1 || (run % N == 0 && packs_fit<T, N>(p) && packs_fit<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        T* outer = p + at / run * stride;
        I inner = at % run;
        if (fit && (full || at < n)) {
            write_pack<N>(outer + inner, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (full || at + j < n) outer[inner] = T(tile.v[k * N + j]);
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
}
"""

LOAD_COLUMN_RUNS = """// As load_columns, where row `at` lies at p[at / run * outer + at % run * stride].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_column_runs(const T* __restrict__ p, I base, I step, I n, I stride, int width,
                                               I outer, I run) {
    Tile<T, ITEMS * N> tile;
    const bool fit = width == N && packs_fit<T, N>(p) &&
                     (N == 1 || (packs_fit<T, N>(p + stride) && packs_fit<T, N>(p + outer)));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        const T* const row = p + (at / run * outer + at % run * stride);
        if (fit) {
            read_pack<N>(row, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) tile.v[k * N + j] = row[j];
        }
    }
    return tile;
}
"""

STORE_COLUMN_RUNS = """template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_column_runs(T* __restrict__ p, I base, I step, I n, I stride, int width, I outer, I run,
                                  const Tile<V, ITEMS * N>& tile) {
    const bool fit = width == N && packs_fit<T, N>(p) &&
                     (N == 1 || (packs_fit<T, N>(p + stride) && packs_fit<T, N>(p + outer)));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        T* const row = p + (at / run * outer + at % run * stride);
        if (fit) {
            write_pack<N>(row, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) row[j] = T(tile.v[k * N + j]);
        }
    }
}
"""

LOAD_ROWS = """// Packs of `width` <= N neighbouring columns from the first `count` of ITEMS rows that lie anywhere.
template <int ITEMS, int N, typename T>
__device__ Tile<T, ITEMS * N> load_rows(const T* const (&rows)[ITEMS], int count, int width) {
    Tile<T, ITEMS * N> tile;
    bool fit = width == N;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) fit = fit && (k >= count || packs_fit<T, N>(rows[k]));
    if (fit && count == ITEMS) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) read_pack<N>(rows[k], tile.v + k * N);
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        if (k >= count) continue;
        if (fit) {
            read_pack<N>(rows[k], tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) tile.v[k * N + j] = rows[k][j];
        }
    }
    return tile;
}
"""

LOAD_BACK = """// As load_tile, of a row that is walked backwards: element `at` lies at p[-at].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_back(const T* __restrict__ p, I base, I step, I n, bool full = false) {
    Tile<T, ITEMS * N> tile;
    const bool fit = packs_fit<T, N>(p - (N - 1));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (fit && (full || at + N <= n)) {
            T pack[N];
            read_pack<N>(p - (at + (N - 1)), pack);
#pragma unroll
            for (int j = 0; j < N; ++j) tile.v[k * N + j] = pack[N - 1 - j];
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) tile.v[k * N + j] = p[-(at + j)];
        }
    }
    return tile;
}
"""

STORE_BACK = """template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_back(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile, bool full = false) {
    const bool fit = packs_fit<T, N>(p - (N - 1));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (fit && (full || at + N <= n)) {
            V pack[N];
#pragma unroll
            for (int j = 0; j < N; ++j) pack[N - 1 - j] = tile.v[k * N + j];
            write_pack<N>(p - (at + (N - 1)), pack);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) p[-(at + j)] = T(tile.v[k * N + j]);
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

RUNS = {
    "load_runs": LOAD_RUNS,
    "store_runs": STORE_RUNS,
    "load_column_runs": LOAD_COLUMN_RUNS,
    "store_column_runs": STORE_COLUMN_RUNS,
    "load_rows": LOAD_ROWS,
    "load_back": LOAD_BACK,
    "store_back": STORE_BACK,
}
