"""Rewrite rules of the normal form: composite operators are expanded, so that spellings of one computation agree. Pure.

A rule takes the builder, the arguments, the keyword arguments, and the result's dtype and shape. It returns the value
in normal form, or None where it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hipwright.synth.graphs.form import Argument, DimArgument, FormValue, NormalForm, Ref

Shape = tuple[int, ...]
Keywords = Mapping[str, Argument]


class FormBuilder(Protocol):
    """Adds values to a form (normalise.py)."""

    form: NormalForm

    def make(self, op: str, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref:
        """Add the result of an operator in normal form."""

    def permuted(self, x: Ref, order: tuple[int, ...], dtype: str, shape: Shape) -> Ref:
        """x with its dimensions in another order."""


Rule = Callable[[Any, tuple[Argument, ...], Keywords, str, Shape], "Ref | None"]
RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return register


def _is_number(argument: Argument) -> bool:
    return isinstance(argument, (int, float)) and not isinstance(argument, bool)


def _operand(m: FormBuilder, ref: Ref) -> FormValue:
    return m.form.values[ref.id]


def _unchanged(m: FormBuilder, argument: Argument, dtype: str, shape: Shape) -> bool:
    """Whether the argument has the dtype and shape of the result."""
    return isinstance(argument, Ref) and (_operand(m, argument).dtype, _operand(m, argument).shape) == (dtype, shape)


# ---------------------------------------------------------------- products


@_rule("linear")
def _linear(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    x, weight, *bias = args
    value = _operand(m, weight)
    turned = m.permuted(weight, (1, 0), value.dtype, value.shape[::-1]) if len(value.shape) == 2 else weight
    product = m.make("matmul", (x, turned), {}, dtype, shape)
    return m.make("add", (product, bias[0]), {}, dtype, shape) if bias and bias[0] is not None else product


@_rule("addmm", "baddbmm")
def _addmm(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    if keywords or len(args) > 3:
        return None
    return m.make("add", (m.make("matmul", args[1:], {}, dtype, shape), args[0]), {}, dtype, shape)


# ---------------------------------------------------------------- arithmetic


@_rule("add")
def _add(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    if "alpha" in keywords and isinstance(args[1], Ref):
        other = _operand(m, args[1])
        scaled = m.make("mul", (args[1], keywords["alpha"]), {}, other.dtype, other.shape)
        return m.make("add", (args[0], scaled), {}, dtype, shape)
    return (
        args[0]
        if len(args) == 2 and _is_number(args[1]) and args[1] == 0 and _unchanged(m, args[0], dtype, shape)
        else None
    )


@_rule("sub")
def _sub(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return None if keywords or not _is_number(args[1]) else m.make("add", (args[0], -args[1]), {}, dtype, shape)


@_rule("rsub")
def _rsub(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return None if keywords or len(args) > 2 else m.make("sub", (args[1], args[0]), {}, dtype, shape)


@_rule("mul")
def _mul(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    if len(args) != 2:
        return None
    if isinstance(args[0], Ref) and args[0] == args[1]:
        return m.make("pow", (args[0], 2), {}, dtype, shape)
    return args[0] if _is_number(args[1]) and args[1] == 1 and _unchanged(m, args[0], dtype, shape) else None


@_rule("div")
def _div(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    if keywords or not _is_number(args[1]) or not args[1] or "float" not in dtype:
        return None
    return m.make("mul", (args[0], 1 / args[1]), {}, dtype, shape)


@_rule("addcmul")
def _addcmul(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    if keywords or len(args) != 3:
        return None
    return m.make("add", (args[0], m.make("mul", args[1:], {}, dtype, shape)), {}, dtype, shape)


def _power_of(exponent: float) -> Rule:
    def rule(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
        return m.make("pow", (args[0], exponent), {}, dtype, shape)

    return rule


RULES.update({"square": _power_of(2), "sqrt": _power_of(0.5), "rsqrt": _power_of(-0.5), "reciprocal": _power_of(-1)})


@_rule("pow")
def _pow(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    """1 / sqrt(x) is rsqrt(x)."""
    inner = _operand(m, args[0]) if isinstance(args[0], Ref) else None
    if inner is None or args[1] != -1 or inner.op != "pow" or inner.args[1] != 0.5:
        return None
    return m.make("pow", (inner.args[0], -0.5), {}, dtype, shape)


# ---------------------------------------------------------------- activations


@_rule("silu")
def _silu(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return m.make("mul", (args[0], m.make("sigmoid", args, {}, dtype, shape)), {}, dtype, shape)


@_rule("clamp", "clamp_min")
def _clamp(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    low, high = ([keywords.get("min"), keywords.get("max")] if keywords else [*args[1:], None, None])[:2]
    if high is None and _is_number(low) and low == 0:
        return m.make("relu", (args[0],), {}, dtype, shape)
    return m.form.put(FormValue("clamp", (args[0], low, high), dtype, shape))


@_rule("clamp_max")
def _clamp_max(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return m.make("clamp", (args[0], None, args[1]), {}, dtype, shape)


@_rule("hardtanh")
def _hardtanh(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return m.make("clamp", (args[0], *(args[1:] or (-1.0, 1.0))), {}, dtype, shape)


@_rule("relu6")
def _relu6(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return m.make("clamp", (args[0], 0, 6), {}, dtype, shape)


@_rule("dropout", "feature_dropout", "alpha_dropout")
def _dropout(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return args[0] if len(args) > 2 and not args[2] else None


def _converting(name: str) -> Rule:
    """A softmax that converts its input first, as a conversion and a softmax."""

    def rule(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
        if len(args) < 3:
            return None
        return m.make(name, (m.make("_to_copy", (args[0],), {}, dtype, shape), args[1]), {}, dtype, shape)

    return rule


RULES.update({name: _converting(name) for name in ("softmax", "log_softmax")})


@_rule("masked_fill")
def _masked_fill(
    m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape
) -> Ref | None:
    return m.make("where", (args[1], args[2], args[0]), {}, dtype, shape)


# ---------------------------------------------------------------- reductions and losses


@_rule("linalg_vector_norm")
def _norm(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    if len(args) > 1 and args[1] != 2:
        return None
    x = _operand(m, args[0])
    squares = m.make("pow", (args[0], 2), {}, x.dtype, x.shape)
    total = m.make("sum", (squares, *args[2:]), {k: v for k, v in keywords.items() if k != "dtype"}, dtype, shape)
    return m.make("pow", (total, 0.5), {}, dtype, shape)


@_rule("cross_entropy_loss")
def _cross_entropy(
    m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape
) -> Ref | None:
    logits, target = _operand(m, args[0]), _operand(m, args[1])
    if keywords or "float" in target.dtype or len(args) > 5:
        return None
    axis = 1 if len(logits.shape) > 1 else 0
    logs = m.make("log_softmax", (args[0], axis), {}, logits.dtype, logits.shape)
    return m.make("nll_loss", (logs, *args[1:]), {}, dtype, shape)


def _averaged(distance: Callable[[FormBuilder, Ref, FormValue], Ref]) -> Rule:
    """A loss: the mean (reduction 1, the default), the sum (2) or the elements (0) of a distance of two tensors."""

    def rule(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
        x, y = _operand(m, args[0]), _operand(m, args[1])
        if keywords or x.shape != y.shape:
            return None
        each = distance(m, m.make("sub", args[:2], {}, dtype, x.shape), FormValue("", (), dtype, x.shape))
        kind = args[2] if len(args) > 2 else 1
        return each if kind == 0 else m.make("mean" if kind == 1 else "sum", (each,), {}, dtype, shape)

    return rule


RULES["mse_loss"] = _averaged(lambda m, d, like: m.make("pow", (d, 2), {}, like.dtype, like.shape))
RULES["l1_loss"] = _averaged(lambda m, d, like: m.make("abs", (d,), {}, like.dtype, like.shape))


# ---------------------------------------------------------------- slices and expansion


@_rule("expand")
def _expand(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    return (
        args[0] if _unchanged(m, args[0], dtype, shape) else m.form.put(FormValue("expand", (args[0],), dtype, shape))
    )


@_rule("slice")
def _slice(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    """A slice with bounds from the start; a full slice is its operand."""
    step = args[4] if len(args) > 4 else keywords.get("step", 1)
    if step == 1 and _unchanged(m, args[0], dtype, shape):
        return args[0]  # type: ignore[no-any-return]
    given = _operand(m, args[0]).shape
    axis = (args[1] if len(args) > 1 else 0) % max(len(given), 1)
    start = (args[2] if len(args) > 2 else 0) or 0
    start = max(start + given[axis], 0) if start < 0 else start
    end = min(start + shape[axis] * step, given[axis])
    return m.form.put(FormValue("slice", (args[0], DimArgument(axis), start, end, step), dtype, shape))


@_rule("select")
def _select(m: FormBuilder, args: tuple[Argument, ...], keywords: Keywords, dtype: str, shape: Shape) -> Ref | None:
    given = _operand(m, args[0]).shape
    axis = args[1] % max(len(given), 1)
    return m.form.put(FormValue("select", (args[0], DimArgument(axis), args[2] % max(given[axis], 1)), dtype, shape))
