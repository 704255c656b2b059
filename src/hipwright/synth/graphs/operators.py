"""What `normalise.py` knows of ATen operators by their bare names: synonyms, and which arguments name dimensions."""

from __future__ import annotations

from hipwright.synth.graphs.form import COMMUTATIVE

BROADCASTING = COMMUTATIVE | {"sub", "div", "pow", "where", "lt", "le", "gt", "ge", "remainder", "atan2", "fmod"}
COPIES = frozenset({"clone", "contiguous", "alias", "detach", "lift_fresh", "lift_fresh_copy", "positive", "identity"})
RESHAPES = frozenset(
    {
        "view",
        "reshape",
        "_unsafe_view",
        "flatten",
        "unflatten",
        "unsqueeze",
        "squeeze",
        "view_as",
        "reshape_as",
    }
)
OTHER_NAMES = {
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "dot": "matmul",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "expand_as": "expand",
    "broadcast_to": "expand",
    "true_divide": "div",
    "nll_loss_nd": "nll_loss",
}
REDUCTIONS = {
    "sum": 1,
    "mean": 1,
    "amax": 1,
    "amin": 1,
    "prod": 1,
    "var": 1,
    "std": 1,
    "logsumexp": 1,
    "all": 1,
    "any": 1,
    "argmax": 1,
    "argmin": 1,
    "linalg_vector_norm": 2,
}
DIMENSION_ARGUMENTS: dict[str, tuple[int, ...]] = {
    "softmax": (1,),
    "log_softmax": (1,),
    "cumsum": (1,),
    "cumprod": (1,),
    "cummax": (1,),
    "cummin": (1,),
    "logcumsumexp": (1,),
    "gather": (1,),
    "index_select": (1,),
    "select": (1,),
    "slice": (1,),
    "split": (2,),
    "split_with_sizes": (2,),
    "chunk": (2,),
    "unbind": (1,),
    "cat": (1,),
    "stack": (1,),
    "flip": (1,),
    "roll": (2,),
    "sort": (1,),
    "topk": (2,),
    "kthvalue": (2,),
    "cosine_similarity": (2,),
    "glu": (1,),
    "scatter": (1,),
    "scatter_add": (1,),
    "index_add": (1,),
    "diff": (2,),
    "max": (1,),
    "min": (1,),
    "var_mean": (1,),
    "std_mean": (1,),
    "median": (1,),
    "take_along_dim": (2,),
    "repeat_interleave": (2,),
}
TUPLE_ITEMS = {
    ("max", 0): "amax",
    ("max", 1): "argmax",
    ("min", 0): "amin",
    ("min", 1): "argmin",
    ("var_mean", 0): "var",
    ("var_mean", 1): "mean",
    ("std_mean", 0): "std",
    ("std_mean", 1): "mean",
}
SPLITS = frozenset({"split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk"})
PERMUTES = frozenset({"permute", "transpose", "t", "numpy_T", "mT", "adjoint", "movedim", "swapaxes", "swapdims"})
