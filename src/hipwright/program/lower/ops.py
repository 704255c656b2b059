"""Decides by ATen schema which library calls a plan may make. Runs in workers; imports torch.

A call is allowed when its operator has a functional overload (nothing written, tensors returned). Composite functions
of torch.nn.functional without an operator of their own are allowed, except helpers and functions that take callables,
which a list excludes. Randomness is refused unless the task itself draws random numbers (`allow_random`),
or the call's own arguments switch it off (training=False, p=0).
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from hipwright.errors import CandidateError
from hipwright.program.language import (
    CAST_METHODS,
    FACTORIES,
    MATH,
    METADATA_METHODS,
    TORCH_VALUES,
    did_you_mean,
    refusal,
)
from hipwright.program.lower import window_attention
from hipwright.program.lower.alignment import on_aligned
from hipwright.program.lower.private_operators import PRIVATE_OPERATORS

Op = Callable[..., Any]

# helpers, functions that take callables, and composites that could hide a random draw
_NOT_PURE = frozenset(
    {
        "boolean_dispatch",
        "handle_torch_function",
        "has_torch_function_unary",
        "assert_int_or_pair",
        "has_torch_function_variadic",
        "triplet_margin_with_distance_loss",
    }
)
ATTENTION = "scaled_dot_product_attention"
_COMPOSITE_TORCH = ("tensor", "unique", "unravel_index", "finfo", "iinfo", "lu")
_NO_TENSOR_RETURNED = frozenset({"is_complex", "is_floating_point", "result_type", "can_cast", "promote_types"})
_SWITCHES = {"p": 0.0, "dropout_p": 0.0, "dropout": 0.0, "training": False, "train": False}
"""Arguments whose value switches the randomness of an operator off."""


class OperatorRefused(Exception):
    """A library name that a plan may not call; the message says why and what to do."""


@functools.lru_cache(maxsize=4096)
def resolve(space: str, rest: tuple[str, ...], *, allow_random: bool = False, in_place: bool = False) -> Op:
    """The callable behind a library name. `space` is one of language.LIBRARY_ROOTS' values, or "method".

    Raises OperatorRefused for names that do not exist or are not functional.
    """
    name = rest[0]
    why = refusal(name)
    if why:
        raise OperatorRefused(f"{_spelled(space, rest)} is refused: {why}")
    if name.startswith("_") and not (space == "aten" and name in PRIVATE_OPERATORS):
        raise OperatorRefused(f"{_spelled(space, rest)} is private; use a public operator")
    if name.endswith("_") and not in_place:
        raise OperatorRefused(f"{_spelled(space, rest)} works in place; use {name.rstrip('_')}")
    if space == "math":
        return MATH[name]
    if space == "aten":
        return _aten(rest, allow_random)
    if space == "method":
        return _method(name, allow_random, in_place)
    prefix = {"linalg": "linalg_", "fft": "fft_", "special": "special_"}.get(space, "")
    owner = {"torch": torch, "functional": F}.get(space) or getattr(torch, space)
    found = getattr(owner, name, None)
    packet = _packet(prefix + name)
    allowed = packet is not None and _functional(packet)
    if space == "functional" and not allowed:
        allowed = _pure_function(name)
    if space == "torch" and name in _COMPOSITE_TORCH:
        allowed = True
    if not callable(found) or not allowed:
        raise OperatorRefused(_why_not(space, rest, found, packet, owner))
    return _restricted(_spelled(space, rest), found, packet, allow_random)


def _spelled(space: str, rest: tuple[str, ...]) -> str:
    lead = {"torch": "torch.", "functional": "torch.nn.functional.", "aten": "torch.ops.aten.", "method": "."}
    return lead.get(space, f"torch.{space}.") + ".".join(rest) + ("()" if space == "method" else "")


def _why_not(space: str, rest: tuple[str, ...], found: object, packet: Any, owner: object) -> str:
    spelled = _spelled(space, rest)
    if found is not None and (packet is not None or callable(found)):
        return f"{spelled} is not a functional ATen operator, so a plan cannot call it"
    known = [n for n in dir(owner) if not n.startswith("_") and _packet(n) is not None]
    other = "torch.nn.functional." if space == "torch" and hasattr(F, rest[0]) else ""
    other = other or ("torch." if space == "functional" and _packet(rest[0]) is not None else "")
    hint = f"; did you mean {other}{rest[0]}?" if other else did_you_mean(rest[0], known)
    return f"unknown operator {spelled}{hint}"


def _packet(name: str) -> Any:
    """torch.ops.aten.<name>, or None."""
    found = None if name.startswith("__") else getattr(torch.ops.aten, name, None)
    return found if isinstance(found, torch._ops.OpOverloadPacket) else None


def _schemas(packet: Any) -> list[Any]:
    return [getattr(packet, name)._schema for name in packet.overloads()]


def _functional(packet: Any) -> bool:
    return any(map(_functional_schema, _schemas(packet)))


def _functional_schema(schema: Any) -> bool:
    """Whether an operator writes nothing, reads no file, and returns tensors only."""
    if schema.name.split("::")[1] in _NO_TENSOR_RETURNED:
        return True
    if any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
        return False
    if any(a.name in ("filename", "storage") for a in schema.arguments) or not schema.returns:
        return False
    return all("Tensor" in str(r.type) for r in schema.returns)


def _pure_function(name: str) -> bool:
    """Whether a name is a composite of torch.nn.functional that takes tensors and numbers."""
    found = getattr(F, name, None)
    if name in _NOT_PURE:
        return False
    return isinstance(found, (types.FunctionType, types.BuiltinFunctionType)) and (
        getattr(found, "__module__", "") in ("torch.nn.functional", "torch._jit_internal", None, "torch._C._nn")
    )


def _aten(rest: tuple[str, ...], allow_random: bool) -> Op:
    packet = _packet(rest[0])
    if packet is None:
        known = [n for n in dir(torch) if not n.startswith("_")]
        raise OperatorRefused(f"unknown operator {_spelled('aten', rest)}{did_you_mean(rest[0], known)}")
    overload = packet
    if len(rest) == 2:
        if rest[1] not in packet.overloads():
            raise OperatorRefused(f"{_spelled('aten', rest)}: its overloads are {', '.join(packet.overloads())}")
        overload = getattr(packet, rest[1])
        good = _functional_schema(overload._schema)
    else:
        good = all(_functional_schema(s) or _has_out(s) for s in _schemas(packet))
    if not good:
        raise OperatorRefused(
            f"{_spelled('aten', rest)} is not functional (it writes, or returns no tensor); use the functional form"
        )
    return _restricted(_spelled("aten", rest), overload, packet, allow_random)


def _has_out(schema: Any) -> bool:
    """Whether a schema is an out= overload, which is unreachable: out= is refused in every call."""
    return any(a.kwarg_only and a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)


def _method(name: str, allow_random: bool, in_place: bool) -> Op:
    found = getattr(torch.Tensor, name, None)
    if in_place:
        if found is None or _packet(name) is None:
            raise OperatorRefused(f"unknown method .{name}(){did_you_mean(name, dir(torch.Tensor))}")
        return _buffer_method(name, found)
    if name in METADATA_METHODS or name in CAST_METHODS or name in ("unique", "new_tensor"):
        return _tensor_method(name)
    packet = _packet(name)
    if found is None or packet is None or not _functional(packet):
        known = [n for n in dir(torch.Tensor) if not n.startswith("_") and not n.endswith("_")]
        if found is None:
            raise OperatorRefused(f"unknown method .{name}(){did_you_mean(name, known)}")
        raise OperatorRefused(f".{name}() is not a functional ATen operator, so a plan cannot call it")
    if not any(s.arguments and "Tensor" in str(s.arguments[0].type) for s in _schemas(packet)):
        raise OperatorRefused(f".{name}() is not an operator on a tensor")
    return _restricted(f".{name}()", found, packet, allow_random)


def _tensor_method(name: str) -> Op:
    found: Op = getattr(torch.Tensor, name)
    return found


def _buffer_method(name: str, found: Op) -> Op:
    allowed = (
        "copy_",
        "add_",
        "sub_",
        "mul_",
        "div_",
        "zero_",
        "fill_",
        "lerp_",
        "clamp_",
        "addcmul_",
        "addcdiv_",
        "index_copy_",
        "index_add_",
        "index_put_",
        "scatter_",
        "masked_fill_",
        "sqrt_",
        "neg_",
        "logical_not_",
    )
    if name not in allowed:
        raise OperatorRefused(f".{name}() is not among the ways to update a tensor in place: {', '.join(allowed)}")
    return found


# ---------------------------------------------------------------- restrictions on arguments


def _restricted(spelled: str, found: Op, packet: Any, allow_random: bool) -> Op:
    """`found`, wrapped where some of its arguments must be refused."""
    names = _argument_names(found, packet)
    call = found
    random = _is_random(packet) or any(n in names for n in ("dropout_p",)) or _dropout_like(found)
    if random and not allow_random and not _is_given_draws(spelled, packet):
        if not any(n in names for n in _SWITCHES):
            raise OperatorRefused(f"{spelled} draws random numbers, and this task draws none")
        call = _no_draw(spelled, call, names)
    for name, neutral in (("inplace", False), ("max_norm", None)):
        if name in names:
            call = _must_be(spelled, call, names.index(name), name, neutral)
    if spelled.startswith(window_attention.NAME):
        call = window_attention.on_every_device(call)
    return on_aligned(call) if spelled.startswith(window_attention.NAME) or spelled.endswith(ATTENTION) else call


def _is_random(packet: Any) -> bool:
    if packet is None:
        return False
    tag = torch.Tag.nondeterministic_seeded
    return any(tag in getattr(packet, overload).tags for overload in packet.overloads())


def _is_given_draws(spelled: str, packet: Any) -> bool:
    """Whether an operator takes as an argument what was drawn for it, whatever its tag says."""
    schemas = _schemas(packet) if packet is not None and spelled.startswith("torch.ops.") else []
    return any(argument.name == "random_samples" for schema in schemas for argument in schema.arguments)


def _dropout_like(found: Op) -> bool:
    name = getattr(found, "__name__", "")
    return "dropout" in name or name == "gumbel_softmax" or name.startswith("fractional_max_pool")


def _argument_names(found: Op, packet: Any) -> tuple[str, ...]:
    if isinstance(found, torch._ops.OpOverload):
        return tuple(a.name for a in found._schema.arguments)
    try:
        return tuple(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        schemas = [] if packet is None else [s for s in _schemas(packet) if _functional_schema(s)]
        return tuple(a.name for a in schemas[0].arguments) if schemas else ()


def _no_draw(spelled: str, call: Op, names: tuple[str, ...]) -> Op:
    """Wraps `call` to refuse arguments with which it would draw random numbers."""
    switches = [(names.index(n), n, off) for n, off in _SWITCHES.items() if n in names]
    # scaled_dot_product_attention draws only on request; dropout draws by default
    quiet_by_default = any(n == "dropout_p" for _, n, _ in switches)
    first = min((i for i, _, _ in switches), default=0) if quiet_by_default else 0  # fewer arguments draw nothing

    def checked(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= first and not kwargs and quiet_by_default:
            return call(*args)
        given = [(kwargs[n] if n in kwargs else args[i], off) for i, n, off in switches if n in kwargs or i < len(args)]
        if any(value == off for value, off in given) or (quiet_by_default and not given):
            return call(*args, **kwargs)
        raise CandidateError(
            f"{spelled} would draw random numbers, and this task draws none; switch it off by "
            f"{' or '.join(f'{n}={off}' for _, n, off in switches)}",
            stage="launch",
        )

    return checked


def _must_be(spelled: str, call: Op, index: int, name: str, neutral: object) -> Op:
    """Wraps `call` to refuse any but the neutral value of an argument that makes it work in place."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        value = kwargs.get(name, args[index] if len(args) > index else neutral)
        if value is not neutral:
            raise CandidateError(f"{spelled}: {name}={value} writes in place; leave it out", stage="launch")
        return call(*args, **kwargs)

    return checked


# ---------------------------------------------------------------- values


def torch_value(name: str) -> Any:
    """torch.float32, torch.channels_last, torch.inf, ... (the names are in language.TORCH_VALUES)."""
    assert name in TORCH_VALUES
    return getattr(torch, name)


def is_factory(space: str, name: str) -> bool:
    """Whether a call makes a tensor from host numbers and so needs the plan's device."""
    return space == "torch" and name in FACTORIES


def math_value(name: str) -> float:
    """math.pi and the like."""
    return float(getattr(math, name))
