// Reduction operators as function objects.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/arithmetic.h>

struct Sum {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};

struct Product {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return a * b;
    }
};

struct Max {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return nan_max(a, b);
    }
};

struct MaxNumber {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return fmax(a, b);
    }
};

struct Min {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return nan_min(a, b);
    }
};

struct Any {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return a || b;
    }
};

struct All {
    template <typename T>
    __device__ T operator()(T a, T b) const {
        return a && b;
    }
};
