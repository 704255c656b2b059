// Activation and other functions of floats and doubles.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/constants.h>
#include <hipwright/arithmetic.h>

__device__ inline float sigmoid(float x) {
    return fast_divide(1.0f, 1.0f + expf(-x));
}

__device__ inline double sigmoid(double x) {
    return fast_divide(1.0, 1.0 + exp(-x));
}

__device__ inline float silu(float x) {
    return fast_divide(x, 1.0f + expf(-x));
}

__device__ inline double silu(double x) {
    return fast_divide(x, 1.0 + exp(-x));
}

__device__ inline float gelu(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

__device__ inline double gelu(double x) {
    return 0.5 * x * (1.0 + erf(x * 0.70710678118654752));
}

__device__ inline float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}

__device__ inline double gelu_tanh(double x) {
    return 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

__device__ inline float reciprocal(float x) {
    return 1.0f / x;
}

__device__ inline double reciprocal(double x) {
    return 1.0 / x;
}

// x to the power of 3/4, at most 2 units in the last place from it, as powf is 4; the power of minus infinity is
// infinity, that of other negative numbers is NaN.
__device__ inline float pow_three_quarters(float x) {
    const float root = sqrtf(x == -INFINITY ? INFINITY : x);
    return root * sqrtf(root);
}

__device__ inline float saturated_reciprocal(float x) {
    const float y = 1.0f / x, most = 3.402823466e38f;
    return x != 0.0f && fabsf(y) > most ? copysignf(most, x) : y;  // 0 over a subnormal is 0
}

__device__ inline double saturated_reciprocal(double x) {
    const double y = 1.0 / x, most = 3.402823466e38f;
    return x != 0.0 && fabs(y) > most ? copysign(most, x) : y;  // 0 over a subnormal is 0
}

__device__ inline float frac(float x) {
    return x - truncf(x);
}

__device__ inline double frac(double x) {
    return x - trunc(x);
}

__device__ inline float mish(float x) {
    return x * tanhf(x > 20.0f ? x : log1pf(expf(x)));
}

__device__ inline double mish(double x) {
    return x * tanh(x > 20.0 ? x : log1p(exp(x)));
}

__device__ inline float hardswish(float x) {
    return x * nan_min(nan_max(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
}

__device__ inline double hardswish(double x) {
    return x * nan_min(nan_max(x + 3.0, 0.0), 6.0) * (1.0 / 6.0);
}

__device__ inline float hardsigmoid(float x) {
    return nan_min(nan_max(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
}

__device__ inline double hardsigmoid(double x) {
    return nan_min(nan_max(x + 3.0, 0.0), 6.0) * (1.0 / 6.0);
}

__device__ inline float softsign(float x) {
    return x / (1.0f + fabsf(x));
}

__device__ inline double softsign(double x) {
    return x / (1.0 + fabs(x));
}

__device__ inline float logsigmoid(float x) {
    return (x < 0.0f ? x : 0.0f) - log1pf(expf(-fabsf(x)));
}

__device__ inline double logsigmoid(double x) {
    return (x < 0.0 ? x : 0.0) - log1p(exp(-fabs(x)));
}

__device__ inline float tanhshrink(float x) {
    return x - tanhf(x);
}

__device__ inline double tanhshrink(double x) {
    return x - tanh(x);
}

__device__ inline float selu(float x) {
    return 1.0507009873554805f * (x > 0.0f ? x : 1.6732632423543772f * expm1f(x));
}

__device__ inline double selu(double x) {
    return 1.0507009873554805 * (x > 0.0 ? x : 1.6732632423543772 * expm1(x));
}

__device__ inline float leaky_relu(float x, float slope) {
    return x > 0.0f ? x : x * slope;
}

__device__ inline double leaky_relu(double x, double slope) {
    return x > 0.0 ? x : x * slope;
}

__device__ inline float elu(float x, float alpha, float scale, float input_scale) {
    return x > 0.0f ? x * scale : alpha * scale * expm1f(x * input_scale);
}

__device__ inline double elu(double x, double alpha, double scale, double input_scale) {
    return x > 0.0 ? x * scale : alpha * scale * expm1(x * input_scale);
}

__device__ inline float celu(float x, float alpha) {
    return x > 0.0f ? x : alpha * expm1f(x / alpha);
}

__device__ inline double celu(double x, double alpha) {
    return x > 0.0 ? x : alpha * expm1(x / alpha);
}

__device__ inline float softplus(float x, float beta, float threshold) {
    return x * beta > threshold ? x : log1pf(expf(x * beta)) / beta;
}

__device__ inline double softplus(double x, double beta, double threshold) {
    return x * beta > threshold ? x : log1p(exp(x * beta)) / beta;
}

__device__ inline float threshold(float x, float limit, float value) {
    return x <= limit ? value : x;
}

__device__ inline double threshold(double x, double limit, double value) {
    return x <= limit ? value : x;
}

__device__ inline float clamp(float x, float low, float high) {
    return nan_min(nan_max(x, low), high);
}

__device__ inline double clamp(double x, double low, double high) {
    return nan_min(nan_max(x, low), high);
}

__device__ inline float hardshrink(float x, float limit) {
    return x >= -limit && x <= limit ? 0.0f : x;
}

__device__ inline double hardshrink(double x, double limit) {
    return x >= -limit && x <= limit ? 0.0 : x;
}

__device__ inline float softshrink(float x, float limit) {
    return x > limit ? x - limit : (x < -limit ? x + limit : 0.0f * x);
}

__device__ inline double softshrink(double x, double limit) {
    return x > limit ? x - limit : (x < -limit ? x + limit : 0.0 * x);
}

__device__ inline float finite_or_zero(float x) {
    return x - x == 0.0f || x != x ? x : 0.0f;  // inf shifts nothing
}

__device__ inline double finite_or_zero(double x) {
    return x - x == 0.0 || x != x ? x : 0.0;  // inf shifts nothing
}

__device__ inline float squared_error(float a, float b) {
    const float d = a - b;
    return d * d;
}

__device__ inline double squared_error(double a, double b) {
    const double d = a - b;
    return d * d;
}

__device__ inline float absolute_error(float a, float b) {
    return fabsf(a - b);
}

__device__ inline double absolute_error(double a, double b) {
    return fabs(a - b);
}

__device__ inline float smooth_l1(float a, float b, float beta) {
    const float d = fabsf(a - b);
    return d < beta ? 0.5f * d * d / beta : d - 0.5f * beta;
}

__device__ inline double smooth_l1(double a, double b, double beta) {
    const double d = fabs(a - b);
    return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
}

__device__ inline float huber(float a, float b, float delta) {
    const float d = fabsf(a - b);
    return d <= delta ? 0.5f * d * d : delta * (d - 0.5f * delta);
}

__device__ inline double huber(double a, double b, double delta) {
    const double d = fabs(a - b);
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}

__device__ inline float binary_entropy(float x, float y) {
    return (y - 1.0f) * nan_max(log1pf(-x), -100.0f) - y * nan_max(logf(x), -100.0f);
}

__device__ inline double binary_entropy(double x, double y) {
    return (y - 1.0) * nan_max(log1p(-x), -100.0) - y * nan_max(log(x), -100.0);
}

__device__ inline float logit_entropy(float x, float y, float weight) {
    const float scale = (weight - 1.0f) * y + 1.0f;
    return (1.0f - y) * x + scale * (log1pf(expf(-fabsf(x))) + (x < 0.0f ? -x : 0.0f));
}

__device__ inline double logit_entropy(double x, double y, double weight) {
    const double scale = (weight - 1.0) * y + 1.0;
    return (1.0 - y) * x + scale * (log1p(exp(-fabs(x))) + (x < 0.0 ? -x : 0.0));
}

__device__ inline float kl(float x, float y) {
    return (y > 0.0f ? y * logf(y) : (y == 0.0f ? 0.0f : y * NAN)) - y * x;
}

__device__ inline double kl(double x, double y) {
    return (y > 0.0 ? y * log(y) : (y == 0.0 ? 0.0 : y * NAN)) - y * x;
}

__device__ inline float kl_log(float x, float y) {
    return expf(y) * (y - x);
}

__device__ inline double kl_log(double x, double y) {
    return exp(y) * (y - x);
}

__device__ inline float hinge_embedding(float x, float y, float margin) {
    return (y != 1.0f ? nan_max(margin - x, 0.0f) : 0.0f) + (y != -1.0f ? x : 0.0f);
}

__device__ inline double hinge_embedding(double x, double y, double margin) {
    return (y != 1.0 ? nan_max(margin - x, 0.0) : 0.0) + (y != -1.0 ? x : 0.0);
}

__device__ inline float cosine_embedding(float x, float y, float margin) {
    return y == 1.0f ? 1.0f - x : (y == -1.0f ? nan_max(x - margin, 0.0f) : 0.0f);
}

__device__ inline double cosine_embedding(double x, double y, double margin) {
    return y == 1.0 ? 1.0 - x : (y == -1.0 ? nan_max(x - margin, 0.0) : 0.0);
}

__device__ inline float floor_mod(float a, float b) {
    const float m = fmodf(a, b);
    return m != 0.0f && (b < 0.0f) != (m < 0.0f) ? m + b : m;
}

__device__ inline double floor_mod(double a, double b) {
    const double m = fmod(a, b);
    return m != 0.0 && (b < 0.0) != (m < 0.0) ? m + b : m;
}

__device__ inline float truncated_mod(float a, float b) {
    return fmodf(a, b);
}

__device__ inline double truncated_mod(double a, double b) {
    return fmod(a, b);
}

__device__ inline float floor_div(float a, float b) {
    if (b == 0.0f) return a / b;
    const float m = fmodf(a, b);
    float q = (a - m) / b;
    if (m != 0.0f && (b < 0.0f) != (m < 0.0f)) q -= 1.0f;
    if (q == 0.0f) return copysignf(0.0f, a / b);
    const float f = floorf(q);
    return q - f > 0.5f ? f + 1.0f : f;
}

__device__ inline double floor_div(double a, double b) {
    if (b == 0.0) return a / b;
    const double m = fmod(a, b);
    double q = (a - m) / b;
    if (m != 0.0 && (b < 0.0) != (m < 0.0)) q -= 1.0;
    if (q == 0.0) return copysign(0.0, a / b);
    const double f = floor(q);
    return q - f > 0.5 ? f + 1.0 : f;
}

__device__ inline float small_int_to_float(int x, float offset) {
    // x - offset for |x| and |offset| below 2^22 and a whole offset: adding x to the bits of 1.5 * 2^23 is exact
#ifdef __CUDA_ARCH__
    return __int_as_float(0x4b400000 + x) - (12582912.0f + offset);
#else
    return (float)x - offset;
#endif
}

__device__ inline double small_int_to_float(int x, double offset) {
    // x - offset for |x| and |offset| below 2^22 and a whole offset: adding x to the bits of 1.5 * 2^23 is exact
#ifdef __CUDA_ARCH__
    return __int_as_float(0x4b400000 + x) - (12582912.0 + offset);
#else
    return (double)x - offset;
#endif
}

__device__ inline float small_uint_to_float(int x, float offset) {
    // as small_int_to_float for x >= 0, whose bits can be combined by `or`
#ifdef __CUDA_ARCH__
    return __int_as_float(0x4b000000 | x) - (8388608.0f + offset);
#else
    return (float)x - offset;
#endif
}

__device__ inline double small_uint_to_float(int x, double offset) {
    // as small_int_to_float for x >= 0, whose bits can be combined by `or`
#ifdef __CUDA_ARCH__
    return __int_as_float(0x4b000000 | x) - (8388608.0 + offset);
#else
    return (double)x - offset;
#endif
}

__device__ inline float corner_ratio(float source, float target) {
    return target > 0.0f ? source / target : 0.0f;
}

__device__ inline double corner_ratio(double source, double target) {
    return target > 0.0 ? source / target : 0.0;
}

__device__ inline float corner_position(long i, float ratio) {
    return ratio * (float)i;
}

__device__ inline double corner_position(long i, double ratio) {
    return ratio * (double)i;
}

__device__ inline float centre_position(long i, float ratio) {
    const float p = ratio * ((float)i + 0.5f) - 0.5f;
    return p < 0.0f ? 0.0f : p;
}

__device__ inline double centre_position(long i, double ratio) {
    const double p = ratio * ((double)i + 0.5) - 0.5;
    return p < 0.0 ? 0.0 : p;
}

// The exponent e of x = m * 2^e with 1/2 <= |m| < 1; 0 of zeros, infinities and NaN.
__device__ inline int frexp_exponent(float x) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    bits &= 0x7fffffff;
    if (bits == 0 || bits >= 0x7f800000) return 0;
    if (bits >= 0x00800000) return (int)(bits >> 23) - 126;
    const float scaled = x * 33554432.0f;  // subnormal
    __builtin_memcpy(&bits, &scaled, 4);
    return (int)(bits >> 23 & 0xff) - 151;
}

// The number m of x = m * 2^e with 1/2 <= |m| < 1; x itself of zeros, infinities and NaN.
__device__ inline float frexp_mantissa(float x) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    const unsigned size = bits & 0x7fffffff;
    if (size == 0 || size >= 0x7f800000) return x;
    if (size < 0x00800000) {
        x *= 33554432.0f;
        __builtin_memcpy(&bits, &x, 4);
    }
    bits = (bits & 0x807fffff) | 0x3f000000;
    float mantissa;
    __builtin_memcpy(&mantissa, &bits, 4);
    return mantissa;
}
