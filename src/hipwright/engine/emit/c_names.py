"""C names that emitted code must not redefine: keywords, the math library, and what kernels call their own locals."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LIBRARY = _names("""
    tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh erf
    erfc floor ceil trunc rint fmax fmin atan2 hypot copysign pow lgamma
""")
"""Functions of the math library that expressions may call: expf on float, exp on double."""

KEYWORDS = _names("""
    int long float double bool char short unsigned signed const void if else for while return struct template
    typename auto static inline class public private new delete this true false switch case default break continue
    do goto sizeof namespace using operator union enum volatile register extern xor and or not bitand bitor compl
""")

GLOBALS = _names("""
    abs min max div half index round signal exp2 gamma y0 y1 yn jn time log fabs fmod logb remove rename NAN
    INFINITY threadIdx blockIdx blockDim gridDim warpSize
""")
"""Names that the C library and HIP define besides."""

KERNEL_LOCALS = _names("""
    row lane live base first i r k j0 j1 j2 j3 i0 i1 i2 i3 n stack pack carry across arrived before border bound
    chunks col column count flip head items line part reach rest segment start step team ta tb ta0 tb0 tx ty ticket
    tile tiles tiles_a tiles_b total v value width kept active block_rank blocks cached cached_tiles interior
    max_cached per_segment remaining to_boundary vector vectors
""")
"""Names that the templates of rows, scans and transposes declare in their kernels."""

C_NAMES = LIBRARY | {f"{name}f" for name in LIBRARY} | KEYWORDS | GLOBALS | KERNEL_LOCALS
