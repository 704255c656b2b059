"""Keys beyond the diagonal of a causal mask that a module writes itself: what may be left out, and what may not.

Where every key after a query gets one constant score, its exponential is 0 unless nothing before it scores higher, so
that tiles beyond the diagonal need not be computed. But 0 times an infinite or NaN value is NaN in the module: such
values are looked for. A row whose best score is not far above a finite constant makes its tiles go on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import E
from hipwright.engine.ir.index import Ix, Var, ix, nonneg
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.attention.form import AttentionProblem, read, vector
from hipwright.engine.templates.call_kernel import CallKernel

VANISHES = 104.0
"""exp(-104) is 0 in float: half of the least denormal number is exp(-103.97)."""
TOKENS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def beyond(f: AttentionProblem) -> float | None:
    """The score of every key after the query, whatever the product; None where there is no such constant."""
    if f.scores is None:
        return None
    query, more = ix(Var("m", f.queries)), ix(Var("u", f.keys))
    lead = [ix(Var(f"i{k}", s)) for k, s in enumerate(f.scores.shape[:-2])]
    found = _folded(f.scores.at([*lead, query, query + 1 + more]))
    return None if found is None else float(found)


def _folded(e: E) -> float | bool | None:
    """The value of an expression whose comparisons of indices are certain."""
    if e.op == "const":
        return e.attr  # type: ignore[no-any-return]
    if e.op in ("sel", "guard"):
        test = _folded(e.args[0])
        return None if test is None else _folded(e.args[1] if test else e.args[2])
    if e.op == "un" and e.attr == "!":
        value = _folded(e.args[0])
        return None if value is None else not value
    if e.op == "cast" and e.attr in ("float", "double"):
        return _folded(e.args[0])
    return _binary(e) if e.op == "bin" else None


def _binary(e: E) -> bool | None:
    a, b = (_folded(x) for x in e.args)
    if e.attr in ("&&", "||"):
        certain = e.attr == "||"  # one operand that settles it
        known = [bool(x) for x in (a, b) if x is not None]
        return certain if certain in known else (not certain if len(known) == 2 else None)
    if e.attr not in TOKENS:
        return None
    if a is not None and b is not None:
        return TOKENS[e.attr](a, b)
    return _ordered(e.attr, *(_index(x) for x in e.args))


def _index(e: E) -> Ix | None:
    if e.op == "index":
        return e.attr  # type: ignore[no-any-return]
    return ix(e.attr) if e.op == "const" and isinstance(e.attr, int) else None


def _ordered(token: str, a: Ix | None, b: Ix | None) -> bool | None:
    """a token b, where that is certain for all indices."""
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


def stop(kernel: CallKernel, f: AttentionProblem, score: float) -> None:
    """At the top of a step of the keys: leave the loop beyond the diagonal, if no row of the block needs the rest."""
    if score == float("-inf"):
        return  # the loop ends at the diagonal: a row with nothing before it is NaN, with the rest or without
    kernel.open("if (n0 >= n_end)")
    kernel.line("bool low = false;  // does a row see nothing far above what the keys beyond the diagonal score?")
    kernel.line("#pragma unroll")
    enough = f"{literal(score, 'float')} + {VANISHES}f"
    rows = kernel.size(f.queries)
    kernel.line(f"for (int r = 0; r < RM; ++r) low |= m0 + ty + TY * r < {rows} && !(best[r] > {enough});")
    kernel.line("if (!__syncthreads_or(low)) break;")
    kernel.close()


def rest(kernel: CallKernel, f: AttentionProblem, v: Tensor, names: list[str]) -> None:
    """Behind the loop: infinite and NaN values of the keys left out, times 0, make their columns NaN."""
    count = vector(v, f.size_v)
    length = kernel.size(f.keys)
    kernel.open(f"if (n0 < {length})")
    kernel.line("int* odd = reinterpret_cast<int*>(kv_tile);  // columns with such a value among the keys left out")
    kernel.line("__syncthreads();")
    kernel.line("for (int d = threadIdx.x; d < DVW; d += THREADS) odd[d] = 0;")
    kernel.line("__syncthreads();")
    kernel.open(f"for ({kernel.kind} i = threadIdx.x; i < ({length} - n0) * (DV / {count}); i += THREADS)")
    kernel.line(f"const {kernel.kind} n = n0 + i / (DV / {count});")
    kernel.line(f"const int d = i % (DV / {count}) * {count};")
    kernel.line(f"float part[{count}];")
    read(kernel, v, [*names, "n", "d"], count, "part")
    kernel.line("#pragma unroll")
    kernel.line(f"for (int j = 0; j < {count}; ++j)")
    kernel.line("    if (!(fabsf(part[j]) < INFINITY)) atomicOr(&odd[d + j], 1);")
    kernel.close()
    kernel.line("__syncthreads();")
    kernel.line("#pragma unroll")
    kernel.open("for (int c = 0; c < C * VW; ++c)")
    kernel.open("if (odd[c / VW * (16 * VW) + tx * VW + c % VW] != 0)")
    kernel.line("#pragma unroll")
    kernel.line("for (int r = 0; r < RM; ++r) out[r][c] = NAN;")
    kernel.close()
    kernel.close()
    kernel.close()


__all__ = ["beyond", "rest", "stop"]
