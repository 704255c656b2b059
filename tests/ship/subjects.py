"""Tasks and programs that the tests ship."""

SCALE_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.w = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.a * self.w

def get_inputs():
    return [torch.rand(5, 8)]

def get_init_inputs():
    return [2.0]
"""

_SCALE_HIP = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale(const float* x, const float* w, float* y, float a, long n, int c) {
    long i = blockIdx.x * (long)BLOCK + threadIdx.x;
    if (i < n) y[i] = x[i] * a * w[i % c];
}
extern "C" __global__ void back_w(const float* x, const float* g, float* y, float a, long n, int c) {
    int j = blockIdx.x * BLOCK + threadIdx.x;
    if (j >= c) return;
    float s = 0.f;
    for (long i = j; i < n; i += c) s += x[i] * g[i];
    y[j] = s * a;
}
'''
BLOCK = knob(256, choices=[64, 256])
"""

SCALE = (
    _SCALE_HIP
    + """
def forward(self, x):
    assert x.shape[1] == 8, "eight columns"
    x = x.contiguous()
    y = torch.empty_like(x)
    scale[cdiv(x.numel(), BLOCK), BLOCK](x, self.w, y, self.a, x.numel(), x.shape[1])
    return y
"""
)

SCALE_BACKWARD = (
    _SCALE_HIP
    + """
def forward(self, x):
    assert x.shape[1] == 8, "eight columns"
    x = x.contiguous()
    y = torch.empty_like(x)
    scale[cdiv(x.numel(), BLOCK), BLOCK](x, self.w, y, self.a, x.numel(), x.shape[1])
    return y, (x, x.shape[0], self.a)

def backward(self, grads, saved):
    x, n, a = saved
    gx = torch.empty_like(grads)
    scale[cdiv(x.numel(), BLOCK), BLOCK](grads, self.w, gx, a, n * 8, 8)
    gw = torch.empty_like(self.w)
    back_w[cdiv(8, BLOCK), BLOCK](x, grads, gw, a, n * 8, 8)
    return {"x": gx, "self.w": gw}
"""
)

NORM_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x, more):
        y = self.norm(x)
        return {"y": y, "same": (x, more["scale"] * y)}

def get_inputs():
    return [torch.rand(6, 4), {"scale": torch.rand(4), "n": 3}]
"""

NORM = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void apply(const float* x, const float* m, const float* r, float* y, long n, int c) {
    long i = blockIdx.x * 64L + threadIdx.x;
    if (i < n) y[i] = (x[i] - m[i % c]) * r[i % c];
}
extern "C" __global__ void moved(float* running, const float* m, int c) {
    int j = threadIdx.x;
    if (j < c) running[j] = 0.9f * running[j] + 0.1f * m[j];
}
'''

def forward(self, x, more):
    mean = x.mean(0)
    var = x.var(0, correction=0)
    r = torch.rsqrt(var + self.norm.eps)
    y = torch.empty_like(x)
    apply[cdiv(x.numel(), 64), 64](x, mean, r, y, x.numel(), x.shape[1])
    moved[1, 64](self.norm.running_mean, mean, x.shape[1])
    self.norm.running_var.lerp_(x.var(0), 0.1)
    self.norm.num_batches_tracked.add_(1)
    y = y * self.norm.weight + self.norm.bias
    return {"y": y, "same": (x, more["scale"] * y)}
"""

LAYERS_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)

def get_inputs():
    return [torch.rand(3, 4)]

def get_init_inputs():
    return [[4, 6, 2]]
"""

LAYERS = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void pack(const float* w, float* out, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) out[i] = 2.f * w[i];
}
extern "C" __global__ void relu(const float* x, float* y, long n) {
    long i = blockIdx.x * 64L + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.f ? x[i] : 0.f;
}
'''

def prepare(self):
    w = torch.empty_like(self.layers[0].weight)
    pack[cdiv(w.numel(), 64), 64](self.layers[0].weight, w, w.numel())
    return {"first": w}

def forward(self, x):
    last = len(self.layers) - 1
    for i, layer in enumerate(self.layers):
        if i == 0:
            x = F.linear(x, self.prepared.first) / 2 + layer.bias
        else:
            x = F.linear(x, layer.weight, layer.bias)
        if i < last:
            y = torch.empty_like(x)
            relu[cdiv(x.numel(), 64), 64](x, y, x.numel())
            x = y
    return x
"""
