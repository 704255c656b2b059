"""hipwright: fast, verified HIP kernels for AMD GPUs from PyTorch code.

Importing this package is cheap (< 0.2 s) and imports neither torch nor an LLM library.
"""

__version__ = "0.1.0"
