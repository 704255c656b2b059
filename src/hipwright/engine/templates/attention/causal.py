"""Causal masks that a module writes itself: which keys beyond the diagonal may be skipped.

Where every key after a query has one constant score, its exponential underflows to 0 unless all scores before it are
low, so that tiles beyond the diagonal need not be computed. But 0 times an infinite or NaN value is NaN in the module:
such values are searched for. A row whose maximum is not far above a finite constant makes its block continue.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import ROUNDING, E
from hipwright.engine.ir.index import Ix, Var, ix, nonneg
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.problem import AttentionProblem, emit_load, vector_width
from hipwright.engine.templates.call_kernel import CallKernel

UNDERFLOW_DISTANCE = 104.0
"""exp(-104) is 0 in float: half of the smallest denormal is exp(-103.97)."""
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def masked_score(f: AttentionProblem) -> float | None:
    """The score of every key after the query, whatever the product; None where it is not constant."""
    if f.scores is None:
        return None
    query, more = ix(Var("m", f.queries)), ix(Var("u", f.keys))
    lead = [ix(Var(f"i{k}", s)) for k, s in enumerate(f.scores.shape[:-2])]
    found = constant_value(f.scores.at([*lead, query, query + 1 + more]))
    return None if found is None else float(found)


def constant_value(e: E, known: Mapping[int, float | bool] | None = None) -> float | bool | None:
    """The value of an expression whose comparisons of indices are decided for all indices; None otherwise.

    known: values of expressions by their ids, taken as they are; then roundings are left out.
    """
    if known and e.id in known:
        return known[e.id]
    if e.op == "const":
        return e.attr  # type: ignore[no-any-return]
    if e.op in ("sel", "guard"):
        test = constant_value(e.args[0], known)
        return None if test is None else constant_value(e.args[1] if test else e.args[2], known)
    if e.op == "un" and e.attr in NEGATIONS:
        value = constant_value(e.args[0], known)
        return None if value is None else NEGATIONS[e.attr](value)
    if known and e.op == "fn" and e.attr in ROUNDING.values():
        return constant_value(e.args[0], known)
    if e.op == "cast" and e.attr in ("float", "double", "int", "long"):
        value = constant_value(e.args[0], known)
        return (
            None if value is None or (e.attr in ("int", "long") and not math.isfinite(value)) else CASTS[e.attr](value)
        )
    return _constant_binary(e, known) if e.op == "bin" else None


NEGATIONS: dict[str, Callable[[Any], float | bool]] = {"!": operator.not_, "-": operator.neg}
CASTS: dict[str, Callable[[Any], float]] = {"float": float, "double": float, "int": int, "long": int}
ARITHMETIC: dict[str, Callable[[Any, Any], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.nan,
}


def _constant_binary(e: E, known: Mapping[int, float | bool] | None) -> float | bool | None:
    a, b = (constant_value(x, known) for x in e.args)
    if e.attr in ARITHMETIC:
        return None if a is None or b is None else ARITHMETIC[e.attr](a, b)
    if e.attr in ("&&", "||"):
        certain = e.attr == "||"  # a value of one operand that decides
        decided = [bool(x) for x in (a, b) if x is not None]
        return certain if certain in decided else (not certain if len(decided) == 2 else None)
    if e.attr not in COMPARISONS:
        return None
    if a is not None and b is not None:
        return COMPARISONS[e.attr](a, b)
    return _constant_comparison(e.attr, *(index_of(x) for x in e.args))


def index_of(e: E) -> Ix | None:
    """An integer expression as an index, None for what is not a sum of indices."""
    if e.op == "index":
        return e.attr  # type: ignore[no-any-return]
    if e.op == "cast" and e.attr in ("int", "long") and e.args[0].ctype in ("int", "long"):
        return index_of(e.args[0])
    if e.op == "un" and e.attr == "-" and e.ctype in ("int", "long"):
        inner = index_of(e.args[0])
        return None if inner is None else -inner
    if e.op == "bin" and e.attr in ("+", "-") and e.ctype in ("int", "long"):
        a, b = (index_of(x) for x in e.args)
        return None if a is None or b is None else (a + b if e.attr == "+" else a - b)
    return ix(e.attr) if e.op == "const" and type(e.attr) is int else None


def _constant_comparison(token: str, a: Ix | None, b: Ix | None) -> bool | None:
    """The value of `a token b`, where it is the same for all indices."""
    if a is None or b is None:
        return None
    below, above = nonneg(b - a - 1), nonneg(a - b - 1)
    if token in ("==", "!="):
        return token == "!=" if below or above else None
    if token in (">", ">="):
        below, above, a, b = above, below, b, a
    if nonneg(b - a - int(token in ("<", ">"))):
        return True
    return False if above or (token in ("<", ">") and nonneg(a - b)) else None


# ---------------------------------------------------------------- text


def emit_early_exit(kernel: CallKernel, f: AttentionProblem, score: float) -> None:
    """At the start of a step: leaves the loop over the keys beyond the diagonal if no row of the block needs the
    rest.
    """
    if score == float("-inf"):
        return  # the loop ends at the diagonal: a row without keys before it is NaN either way
    kernel.open("if (n0 >= n_end)")
    kernel.line("bool needs_rest = false;  // whether a row maximum is not far above the score of the masked keys")
    kernel.line("#pragma unroll")
    enough = f"{literal(score, 'float')} + {UNDERFLOW_DISTANCE}f"
    rows = kernel.size(f.queries)
    kernel.line(f"for (int r = 0; r < RM; ++r) needs_rest |= m0 + ty + TY * r < {rows} && !(row_max[r] > {enough});")
    kernel.line("if (!__syncthreads_or(needs_rest)) break;")
    kernel.close()


def emit_skipped_values(kernel: CallKernel, f: AttentionProblem, v: Tensor, names: list[str]) -> None:
    """After the loop: infinite and NaN values of skipped keys, times 0, make their columns NaN."""
    count = vector_width(v, f.size_v)
    length = kernel.size(f.keys)
    kernel.open(f"if (n0 < {length})")
    kernel.line(
        "int* not_finite = reinterpret_cast<int*>(kv_tile);  // columns with such a value among the skipped keys"
    )
    kernel.line("__syncthreads();")
    kernel.line("for (int d = threadIdx.x; d < DVW; d += THREADS) not_finite[d] = 0;")
    kernel.line("__syncthreads();")
    kernel.open(f"for ({kernel.kind} i = threadIdx.x; i < ({length} - n0) * (DV / {count}); i += THREADS)")
    kernel.line(f"const {kernel.kind} n = n0 + i / (DV / {count});")
    kernel.line(f"const int d = i % (DV / {count}) * {count};")
    kernel.line(f"float values[{count}];")
    emit_load(kernel, v, [*names, "n", "d"], count, "values")
    kernel.line("#pragma unroll")
    kernel.line(f"for (int j = 0; j < {count}; ++j)")
    kernel.line("    if (!(fabsf(values[j]) < INFINITY)) atomicOr(&not_finite[d + j], 1);")
    kernel.close()
    kernel.line("__syncthreads();")
    kernel.line("#pragma unroll")
    kernel.open("for (int c = 0; c < C * VW; ++c)")
    kernel.open("if (not_finite[c / VW * (16 * VW) + tx * VW + c % VW] != 0)")
    kernel.line("#pragma unroll")
    kernel.line("for (int r = 0; r < RM; ++r) out[r][c] = NAN;")
    kernel.close()
    kernel.close()
    kernel.close()


__all__ = ["constant_value", "emit_early_exit", "emit_skipped_values", "index_of", "masked_score"]
