"""Index expressions as text: Python for the plan, C for kernels."""

from __future__ import annotations

from collections.abc import Mapping

from hipwright.engine.ir.index import Atom, Fn, Ind, Ix, Sym, Var


def to_python(p: Ix) -> str:
    """Python text; variables and symbols by their names."""
    return _text(p, {})[0]


def to_c(p: Ix, names: Mapping[str, str] | None = None) -> str:
    """C text of the same. Values read from tensors are looked up by their atom's key in `names`."""
    return _text(p, names or {}, c=True)[0]


def _text(p: Ix, names: Mapping[str, str], c: bool = False) -> tuple[str, int]:
    """(text, precedence): 3 atom, 2 product, 1 sum."""
    if not p.terms:
        return "0", 3
    ordered = sorted(p.terms.items(), key=lambda item: (item[0] == (), item[1] < 0, -len(item[0])))
    out, factors = "", [""]
    for mono, k in ordered:
        size = abs(k)
        factors = [_atom(a, names, c) for a in sorted(mono, key=_rank)]
        if size != 1 or not factors:
            factors.append(str(size))
        term = " * ".join(factors)
        if not out:
            out = term if k > 0 else f"-{term}"
        else:
            out += f" {'+' if k > 0 else '-'} {term}"
    if len(ordered) > 1 or out.startswith("-"):
        return out, 1
    return out, 2 if len(factors) > 1 else 3


def _rank(a: Atom) -> tuple[int, str]:
    return ({Var: 0, Fn: 1, Ind: 2, Sym: 3}[type(a)], a.key)


def _atom(a: Atom, names: Mapping[str, str], c: bool) -> str:
    if isinstance(a, (Var, Sym)):
        return a.name
    if isinstance(a, Ind):
        return names[a.key]
    left, right = _text(a.a, names, c), _text(a.b, names, c)
    if a.op in ("min", "max"):
        return f"{a.op}({left[0]}, {right[0]})"
    op = "/" if c and a.op == "//" else a.op
    lhs = left[0] if left[1] == 3 else f"({left[0]})"
    rhs = right[0] if right[1] == 3 else f"({right[0]})"
    return f"({lhs} {op} {rhs})"
