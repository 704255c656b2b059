"""A ROCm without a GPU: libraries and a compiler with HIP's interfaces over the executor of `sim_rt`."""
