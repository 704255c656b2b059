// Moments of a thread's columns, found from sums of deviations.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/moments.h>

// What a thread has found of N columns: the number of values, the same for each column, and for every column the sums of
// the deviations from a pivot and of their squares. A tile costs neither a merge nor a division. The pivot is the mean of
// the first tile, and then the mean whenever the number of values has doubled: of n values, the first k of which have
// the pivot as their mean, the sum of squares about it is at most n / k times that about their own mean.
// LONG: so many values that a float would lose digits of their squares, whose sum goes on in a double.
template <typename T, int N, bool LONG = false>
struct ColumnDeviations {
    T pivot[N], sum[N], squares[N];
    double long_squares[LONG ? N : 1];
    int count, limit;  // of values: so far, and beyond which the pivots move
};

// Moves the pivots to the means if it is time. SIZE: the values of a column in a tile, at most.
template <int SIZE, typename T, int N, bool LONG>
__device__ void move_pivots(ColumnDeviations<T, N, LONG>& state) {
    if (state.count <= state.limit) return;
    constexpr int LONG_COUNT = 16 * SIZE;  // values that a float sums
    state.limit = state.count - 1 + (LONG && state.count > LONG_COUNT ? LONG_COUNT : state.count);
    const T count = T(state.count), part = fast_fraction(T(1), count);
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const T pivot = state.pivot[j] + state.sum[j] * part, distance = pivot - state.pivot[j];
        state.squares[j] += distance * (count * distance - T(2) * state.sum[j]);
        state.sum[j] -= count * distance;  // what the rounding of the pivot leaves
        state.pivot[j] = pivot;
        if constexpr (LONG) {
            state.long_squares[j] += state.squares[j];
            state.squares[j] = T(0);
        }
    }
}

// The mean of the first `count` values.
template <typename T, int SIZE>
__device__ T mean_of_first(const T (&v)[SIZE], int count) {
    T sum = v[0];
#pragma unroll
    for (int k = 1; k < SIZE; ++k) sum += k < count ? v[k] : T(0);
    return fast_fraction(sum, T(count));
}

// Adds the first `count` values of a tile to column j; the caller adds to the number of values.
template <typename T, int N, bool LONG, int SIZE>
__device__ void add_deviations(ColumnDeviations<T, N, LONG>& state, int j, const T (&v)[SIZE], int count) {
    if (state.count == 0 && count > 0) state.pivot[j] = mean_of_first(v, count);
    T distance = count > 0 ? sub_rn(v[0], state.pivot[j]) : T(0);
    T sum = distance, squares = distance * distance;
#pragma unroll
    for (int k = 1; k < SIZE; ++k) {
        distance = k < count ? sub_rn(v[k], state.pivot[j]) : T(0);
        sum += distance;
        squares += distance * distance;
    }
    state.sum[j] += sum;
    state.squares[j] += squares;
}

// Adds the deviations to the moments of the thread's columns.
template <typename T, int N, bool LONG>
__device__ void finish_moments(Moments<T> (&moments)[N], const ColumnDeviations<T, N, LONG>& state) {
    if (state.count == 0) return;
    const T count = T(state.count), part = fast_fraction(T(1), count);
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const T offset = state.sum[j] * part;
        T squares = state.squares[j] - state.sum[j] * offset;
        if constexpr (LONG) squares += T(state.long_squares[j]);
        squares = squares < T(0) ? T(0) : squares;  // NaN stays NaN
        moments[j] = MergeMoments()(moments[j], Moments<T>{count, state.pivot[j], offset, squares});
    }
}
