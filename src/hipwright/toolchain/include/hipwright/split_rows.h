// Products of floats by matrix units of half types, all columns of 128 rows by one block: in turn, tile after tile.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/split_inside.h>
#include <hipwright/split_product.h>

// Calls each(tile) for `tiles` tiles of WIDTH columns in turn, while `product` has the sums of one. Where k has at most
// KEPT chunks, those of A stay in LDS and are loaded once (NVIDIA); chunks of B are loaded RING - 1 ahead, over the ends of
// tiles. load_a(l, r, chunk) and load_b(l, c, chunk) are the addresses of row r of A and of column c, as in `multiply`; none is
// null. A RowsSplitInside in the place of load_a is split on the way to LDS. LDS has RING tiles of B's chunks, and as many of
// A's or KEPT, of 128 bytes a row.
template <int KEPT, int WIDTH, int RING, typename LoadA, typename LoadB, typename Each>
__device__ __forceinline__ void multiply_tiles(SplitTile<WIDTH, RING>& product, unsigned char* lds, int chunks,
                                               int tiles, LoadA load_a, LoadB load_b, Each each) {
    using Tile = SplitTile<WIDTH, RING>;
#if GEMM_MMA
    constexpr int SLOT_A = 128 * 64, SLOT_B = WIDTH * 64;
    __half* const slots_a = reinterpret_cast<__half*>(lds);
    __half* const slots_b = slots_a + (KEPT > RING ? KEPT : RING) * SLOT_A;
    const bool keeps = chunks <= KEPT;
    const int first = threadIdx.x / 8, vector = threadIdx.x % 8 * 8;
    const auto load_rows = [&](int chunk, int stage) {
        __half* const slot = slots_a + (keeps ? chunk : stage) * SLOT_A;
#pragma unroll
        for (int l = 0; l < 4; ++l) {
            const int r = first + l * 32;
            if constexpr (SPLITS_INSIDE<LoadA>)
                store_split(slot, r, load_a(l, r, chunk));
            else
                cp_async_16(slot + split_index(r, vector), load_a(l, r, chunk) + vector);
        }
    };
    const auto load_columns = [&](int tile, int chunk, int stage) {
#pragma unroll
        for (int l = 0; l < WIDTH / 32; ++l) {
            const int c = first + l * 32;
            cp_async_16(slots_b + stage * SLOT_B + split_index(c, vector), load_b(l, tile * WIDTH + c, chunk) + vector);
        }
    };
    int next_tile = 0, next_chunk = 0;
    const auto advance = [&] {
        next_tile += next_chunk + 1 == chunks;
        next_chunk = next_chunk + 1 == chunks ? 0 : next_chunk + 1;
    };
#pragma unroll
    for (int stage = 0; stage < RING - 1; ++stage) {
        if (next_tile < tiles) {
            if (!SPLITS_INSIDE<LoadA> && (!keeps || next_tile == 0)) load_rows(next_chunk, stage);
            load_columns(next_tile, next_chunk, stage);
        }
        cp_async_commit();
        advance();
    }
    if constexpr (SPLITS_INSIDE<LoadA>) {
        float* const back = reinterpret_cast<float*>(slots_b + (RING - 1) * SLOT_B);  // not loaded yet
        if (keeps) {
            find_scales<KEPT, Tile>(load_a, slots_a, back, chunks);
        } else {
            find_scales<0, Tile>(load_a, slots_a, back, chunks);
#pragma unroll 1
            for (int stage = 0, chunk = 0; stage < RING - 1; ++stage, chunk = chunk + 1 == chunks ? 0 : chunk + 1)
                load_rows(chunk, stage);
        }
    }
    product.begin();
    int stage = 0, next = RING - 1, chunk = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles;) {
        cp_async_wait_group<RING - 2>();
        product.finish_chunk();
        __syncthreads();  // this chunk is complete, and the last is no longer read
        const __half *const a = slots_a + (keeps ? chunk : stage) * SLOT_A, *const b = slots_b + stage * SLOT_B;
        if (RING > 2) product.start(a, b);
        if (next_tile < tiles) {
            if (!keeps || (!SPLITS_INSIDE<LoadA> && next_tile == 0)) load_rows(next_chunk, next);
            load_columns(next_tile, next_chunk, next);
        }
        cp_async_commit();
        if (RING == 2) product.start(a, b);
        product.add(a, b);
        if (++chunk == chunks) {
            product.end();
            each(tile);
            product.begin();
            chunk = 0;
            ++tile;
        }
        stage = stage + 1 == RING ? 0 : stage + 1;
        next = next + 1 == RING ? 0 : next + 1;
        advance();
    }
#else
    if constexpr (SPLITS_INSIDE<LoadA>) {
        find_scales<0, Tile>(load_a, nullptr, reinterpret_cast<float*>(lds), chunks);
        __syncthreads();  // the scales have been read
    }
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        product.multiply(lds, chunks, load_a,
                         [&](int l, int c, int chunk) { return load_b(l, tile * WIDTH + c, chunk); });
        each(tile);
        __syncthreads();  // the last chunk is no longer read
    }
#endif
}

// Replaces the sums that are not finite by exact(r, c) of their row and column in the tile, one after another.
template <int WIDTH, int RING, typename Exact>
__device__ __forceinline__ void replace_infinite(SplitTile<WIDTH, RING>& product, Exact exact) {
    using Tile = SplitTile<WIDTH, RING>;
    unsigned infinite[2] = {};  // one bit each: indices that only a loop knows would put the sums into memory
    bool finite = true;
#pragma unroll
    for (int i = 0; i < Tile::TM; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::TN; ++j) finite = finite && split_is_finite(product.sums[i][j]);
    }
    if (finite) return;
#pragma unroll
    for (int e = 0; e < Tile::TM * Tile::TN; ++e) {
        infinite[e / 32] |= (unsigned)!split_is_finite(product.sums[e / Tile::TN][e % Tile::TN]) << e % 32;
    }
#pragma unroll 1
    for (int e = 0; e < Tile::TM * Tile::TN; ++e) {
        if (((e < 32 ? infinite[0] : infinite[1]) >> e % 32 & 1) == 0) continue;
        const int j = e % Tile::TN;
        const float found = exact(Tile::row(e / Tile::TN), Tile::column(j / Tile::GN) + j % Tile::GN);
#pragma unroll
        for (int other = 0; other < Tile::TM * Tile::TN; ++other) {
            float& sum = product.sums[other / Tile::TN][other % Tile::TN];
            sum = other == e ? found : sum;
        }
    }
}
