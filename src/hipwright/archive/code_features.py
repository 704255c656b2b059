"""Features of tasks and kernels, read from source text alone, for similarity search.

Nothing is executed. Features are weights by name, so that two texts compare by the cosine of their vectors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from math import log2

from hipwright import syntax

# family -> operators: makes operators with different names similar
_FAMILY_OPERATORS = {
    "softmax": "softmax log_softmax softmin gumbel_softmax logsumexp scaled_dot_product_attention cross_entropy",
    "reduction": "sum mean max min amax amin prod var std norm logsumexp softmax log_softmax argmax argmin any all "
    "layer_norm rms_norm group_norm instance_norm batch_norm normalize mse_loss cross_entropy cosine_similarity",
    "norm": "layer_norm rms_norm group_norm instance_norm batch_norm normalize local_response_norm",
    "gemm": "matmul mm bmm addmm baddbmm linear einsum bilinear scaled_dot_product_attention multihead_attention dot",
    "conv": "conv conv_transpose",
    "pool": "max_pool avg_pool adaptive_avg_pool adaptive_max_pool interpolate unfold",
    "attention": "scaled_dot_product_attention multihead_attention",
    "scan": "cumsum cumprod cummax cummin logcumsumexp",
    "index": "embedding embedding_bag gather index_select take take_along_dim index_add scatter scatter_add one_hot",
    "transpose": "transpose permute t mT swapaxes movedim",
    "loss": "mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss kl_div binary_cross_entropy "
    "hinge_embedding_loss triplet_margin_loss cosine_embedding_loss",
    "pointwise": "relu leaky_relu elu selu gelu silu mish sigmoid hardsigmoid hardswish hardtanh tanh softplus "
    "softsign exp log sqrt rsqrt abs pow clamp add sub mul div neg sin cos erf square where lerp dropout reciprocal",
}
FAMILIES: dict[str, tuple[str, ...]] = {}
for _family, _names in _FAMILY_OPERATORS.items():
    for _name in _names.split():
        FAMILIES[_name] = (*FAMILIES.get(_name, ()), _family)

_DTYPES = {
    "float16": "float16",
    "half": "float16",
    "fp16": "float16",
    "__half": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float32": "float32",
    "fp32": "float32",
    "float64": "float64",
    "double": "float64",
    "fp64": "float64",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
    "long": "int64",
}
_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
_TENSOR_FACTORIES = frozenset({"randn", "rand", "randint", "ones", "zeros", "empty", "full", "arange"})
_NOT_OPERATORS = frozenset(
    {
        "module",
        "parameter",
        "buffer",
        "register_buffer",
        "super",
        "size",
        "shape",
        "view",
        "reshape",
        "flatten",
        "contiguous",
        "to",
        "dim",
        "numel",
        "unsqueeze",
        "squeeze",
        "expand",
        "sequential",
        "module_list",
        "range",
        "len",
        "tensor",
        "manual_seed",
        "float",
        "half",
        "bfloat16",
        "double",
        "long",
        "int",
        "append",
        "items",
        "identity",
    }
)
_STOP_WORDS = frozenset(
    {
        "self",
        "torch",
        "nn",
        "def",
        "return",
        "import",
        "class",
        "forward",
        "model",
        "inputs",
        "init",
        "super",
        "module",
        "as",
        "from",
        "the",
        "a",
        "an",
        "of",
        "and",
        "or",
        "to",
        "in",
        "on",
        "is",
        "for",
        "with",
        "that",
        "it",
        "this",
        "by",
        "at",
        "be",
        "are",
        "one",
        "over",
        "into",
        "not",
        "const",
        "int",
        "void",
        "if",
        "else",
        "x",
        "y",
        "n",
        "i",
        "k",
        "get",
    }
)

KERNEL_FEATURES: dict[str, re.Pattern[str]] = {
    "lds": re.compile(r"__shared__|HIP_DYNAMIC_SHARED"),
    "shuffle": re.compile(r"\b__shfl|_update_dpp\(|_ds_bpermute\("),
    "vector": re.compile(
        r"\b(?:float|int|uint|double)[24]\b|\bPack<|\bload_(?:pack|tile|columns)<|\b\w*(?:half|bfloat16)2\b|ext_vector"
    ),
    "mfma": re.compile(r"_mfma_|_wmma_"),
    "atomic": re.compile(r"\b(?:unsafeAtomic|atomic)[A-Z]\w*\("),
    "barrier": re.compile(r"\b__syncthreads\("),
    "grid_stride": re.compile(r"\+= *[^;]*gridDim"),
    "library": re.compile(
        r"\b(?:F|torch)\.(?:linear|conv\w*|matmul|mm|bmm|addmm|einsum|baddbmm|scaled_dot_product_attention)\("
        r"|[\w\])] @ [\w(]"
    ),
}


def tokens(text: str) -> list[str]:
    """Lower-case words of code or prose: whole names, their parts, and the canonical names of dtypes."""
    found: list[str] = []
    for word in re.findall(r"[A-Za-z_][A-Za-z_0-9]*|\d+", text):
        name = snake(word).strip("_")
        parts = [part for part in name.split("_") if part] if "_" in name else []
        for item in (name, *parts):
            if item and item not in _STOP_WORDS:
                found.append(item)
                if (dtype := _DTYPES.get(item, item)) != item:
                    found.append(dtype)
    return found


def snake(name: str) -> str:
    """The functional name of an operator: LayerNorm -> layer_norm, Conv2d and conv2d -> conv, ReLU -> relu."""
    if name in ("ReLU", "GELU", "SiLU", "ELU", "SELU", "CELU", "GLU", "ReLU6", "PReLU", "RReLU", "LSTM", "GRU", "RNN"):
        return name.lower()
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return re.sub(r"(?<=[a-z])_?[123]d$", "", name).replace("leaky_re_lu", "leaky_relu")


def task_features(source: str) -> dict[str, float]:
    """Weights of the operators, families, dtypes, ranks and row widths of a task or any text.

    Python is read by its syntax tree, other text by the operator names that occur in it.
    """
    features: dict[str, float] = {}
    tree = python_tree(source)
    if tree is None:
        words = {snake(word) for word in re.findall(r"[A-Za-z_]\w*", source)}
        operators = {word for word in words if word in FAMILIES}
        families = {word for word in words if word in _FAMILY_OPERATORS}
        dtypes, shapes = {_DTYPES[word] for word in words if word in _DTYPES}, _widths(source)
    else:
        operators, dtypes = _operators(tree), _dtypes(tree)
        families, shapes = set(), _shapes(tree)
    families |= {family for operator in operators for family in FAMILIES.get(operator, ())}
    features |= {f"op:{name}": 1.0 for name in operators}
    features |= {f"family:{name}": 1.5 for name in families}
    features |= {f"dtype:{name}": 0.7 for name in dtypes}
    return features | dict.fromkeys(sorted(shapes), 0.4)


_LIBRARY = [
    "linear(",
    "conv",
    "matmul(",
    "mm(",
    "bmm(",
    "addmm(",
    "einsum(",
    "baddbmm(",
    "scaled_dot_product_attention(",
]
_HINTS = {
    "shuffle": ("__shfl", "_update_dpp(", "_ds_bpermute("),
    "vector": (
        *(f"{name}{width}" for name in ("float", "int", "double") for width in (2, 4)),
        *("Pack<", "load_pack<", "load_tile<", "load_columns<", "half2", "bfloat162", "ext_vector"),
    ),
    "atomic": ("tomic",),
    "barrier": ("__syncthreads(",),
    "library": (" @ ", *(f"{package}.{name}" for package in ("F", "torch") for name in _LIBRARY)),
}
"""Texts of which one occurs wherever a feature's pattern does: looking for them first is ten times as fast."""


def python_tree(source: str) -> ast.Module | None:
    """The syntax tree of Python text with a class or a function, else None."""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if any(isinstance(node, (ast.ClassDef, ast.FunctionDef)) for node in tree.body) else None


def kernel_features(text: str) -> dict[str, float]:
    """1.0 for each of KERNEL_FEATURES that occurs in a program's text."""
    return {
        name: 1.0
        for name, pattern in KERNEL_FEATURES.items()
        if any(hint in text for hint in _HINTS.get(name, ("",))) and pattern.search(text)
    }


def feature_words(features: Mapping[str, float]) -> list[str]:
    """The names of features without their kind, as words for text search."""
    return [name.partition(":")[2] or name for name in sorted(features) if not name.startswith(("rank:", "width:"))]


# ---------------------------------------------------------------- reading a task's tree


def _operators(tree: ast.Module) -> set[str]:
    """The operators of all classes and functions except those that make inputs."""
    found = set()
    for node in _computing(tree):
        name = ""
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        elif isinstance(node, (ast.BinOp, ast.AugAssign)):
            name = _BINARY.get(type(node.op), "") if _tensor_like(node) else ""
        name = snake(name).strip("_")
        if name and name not in _NOT_OPERATORS and name not in _TENSOR_FACTORIES and not name.startswith("get_"):
            found.add(name)
    return found


def _computing(tree: ast.Module) -> Iterator[ast.AST]:
    for item in tree.body:
        if isinstance(item, (ast.ClassDef, ast.FunctionDef)) and not item.name.startswith("get_in"):
            yield from (node for node in ast.walk(item) if node is not item)


def _tensor_like(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether arithmetic may be on tensors: not so for two constants."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
    return not all(isinstance(side, ast.Constant) for side in sides)


def _dtypes(tree: ast.Module) -> set[str]:
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {_DTYPES[name] for name in names if name in _DTYPES} or {"float32"}


def _shapes(tree: ast.Module) -> set[str]:
    """Rank and row width of each tensor that is made with literal sizes or named integer constants."""
    sizes = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = set()
    for node in ast.walk(tree):
        name = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in _TENSOR_FACTORIES:
            continue
        nested = next((arg for arg in node.args if isinstance(arg, (ast.Tuple, ast.List))), None)
        args = nested.elts if nested is not None else node.args
        found.add(f"rank:{len(args)}")
        last = args[-1] if args else None
        value = sizes.get(last.id) if isinstance(last, ast.Name) else getattr(last, "value", None)
        if isinstance(value, int):
            found.add(_width(value))
    return found


def _widths(text: str) -> set[str]:
    return {_width(int(number)) for number in re.findall(r"\b\d{3,9}\b", text)}


def _width(size: int) -> str:
    return "width:" + ("short" if log2(max(size, 1)) <= 10 else "medium" if log2(size) <= 13 else "long")
