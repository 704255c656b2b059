"""What a contained process needs to use a GPU: device nodes, driver libraries and settings, and nothing more.

`access` has what all GPUs have in common, `nvidia` and `amd` what their drivers show on a Linux machine. A contained
process sees one GPU, which torch calls "cuda:0".
"""

from hipwright.sandbox.gpu.access import GpuAccess, gpu_count

__all__ = ["GpuAccess", "gpu_count"]
