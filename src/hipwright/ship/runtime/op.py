"""A plan as `torch.library` operators: shapes for the compiler, gradients where the plan has them, errors where not.

    NAME::forward(arguments, state) -> outputs, new values of written buffers, what backward needs
    NAME::backward(gradients of the outputs, what was saved, state) -> gradients
    NAME::no_backward                what a gradient becomes that the plan does not have: an error when it is computed
The operators are functional: a buffer that the plan writes is copied first, and its new value is returned.
An operator has at most 64 arguments. Where there are more, all tensors are its first, a list, and the rest follow:
spec.LISTED and spec.BACKWARD_LISTED then say of each argument whether it is a tensor, else they are None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .gpu import Kernels, NoKernels

_KEPT: list[Any] = []  # a torch.library.Library removes its operators when it is deleted


class Declined(RuntimeError):
    """The plan does not support these shapes, dtypes or layouts; the message is its guard's."""


class NoBackward(RuntimeError):
    """A gradient that this package cannot compute."""


def register(spec: Any, plan: Any, kernels: Kernels, kind: str = "DEF") -> None:
    """Registers the operators of a package. spec, plan: its generated modules.

    kind: "FRAGMENT" where the namespace spec.NAME has native operators already.
    """
    library = torch.library.Library(spec.NAME, kind)
    _KEPT.append(library)
    made = Operator(spec, plan, kernels)
    tags = (torch.Tag.pt2_compliant_tag,)
    library.define(f"forward{spec.SCHEMA}", tags=tags)
    library.impl("forward", made.forward, "CompositeExplicitAutograd")
    library.define("no_backward(Tensor grad, SymInt[] shape, ScalarType dtype) -> Tensor", tags=tags)
    library.impl("no_backward", made.refuse, "CompositeExplicitAutograd")
    forward = f"{spec.NAME}::forward"
    torch.library.register_fake(forward, made.fake_forward, lib=library)
    torch.library.register_fake(f"{spec.NAME}::no_backward", _like, lib=library)
    if spec.SAVED is None:
        setup, back = made.note_shapes, made.refused
    else:
        library.define(f"backward{spec.BACKWARD_SCHEMA}", tags=tags)
        library.impl("backward", made.backward, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{spec.NAME}::backward", made.fake_backward, lib=library)
        setup, back = made.save, made.gradients
    torch.library.register_autograd(forward, back, setup_context=setup, lib=library)


def _like(grad: Any, shape: Sequence[int], dtype: Any) -> Any:
    return grad.new_empty(shape, dtype=dtype)


class Operator:
    """The implementations of one package's operators."""

    def __init__(self, spec: Any, plan: Any, kernels: Kernels) -> None:
        self.spec, self.plan, self.kernels = spec, plan, kernels
        self._packed = PreparedState(plan.prepare) if hasattr(plan, "prepare") else None
        self._state = [(i, name, shape, getattr(torch, dtype)) for i, name, shape, dtype in spec.STATE]

    # ------------------------------------------------------------ forward

    def forward(self, *arguments: Any) -> Any:
        """Runs the plan on the arguments' device."""
        return self._forward(_flat(arguments, self.spec.LISTED), self.kernels.on)

    def fake_forward(self, *arguments: Any) -> Any:
        """Runs the plan without its kernels: shapes, dtypes and strides."""
        return self._forward(_flat(arguments, self.spec.LISTED), _no_kernels)

    def _forward(self, arguments: Sequence[Any], on: Callable[[Any], Any]) -> Any:
        self._check_state(arguments)
        device = _device_of(arguments)
        with _on_device(device):
            k = on(device)
            own = list(arguments)
            for index in self.spec.WRITTEN:
                own[index] = own[index].clone()
            packed = self.prepared(k, device, own)
            outputs, saved = self.plan.call_forward(k, device, *packed, *own)
            new = [own[index] for index in self.spec.WRITTEN]
            result = tuple(_unshared([*outputs, *new, *self._extra(saved)], arguments))
        return result if len(result) > 1 else result[0]

    def _extra(self, saved: Sequence[Any]) -> list[Any]:
        """The items of `saved` that are neither arguments nor outputs, and so have to be returned."""
        kinds = self.spec.SAVED or ()
        return [item for (kind, _), item in zip(kinds, saved or (), strict=True) if kind == "tensor"]

    def prepared(self, k: Any, device: Any, own: Sequence[Any]) -> list[Any]:
        """The packed weights, in a list of none or one."""
        state = [own[i] for i, _, _, _ in self._state]
        return [] if self._packed is None else [self._packed.get(k, device, state)]

    def _check_state(self, arguments: Sequence[Any]) -> None:
        """Raises Declined for parameters of other shapes or dtypes than the kernels are for, which they would read out
        of bounds.
        """
        for index, name, shape, dtype in self._state:
            tensor = arguments[index]
            if tuple(tensor.shape) != shape or tensor.dtype != dtype:
                raise Declined(
                    f"{name} is {tensor.dtype} of {tuple(tensor.shape)}; the kernels are for {dtype} of {shape}"
                )

    # ------------------------------------------------------------ backward

    def backward(self, *arguments: Any) -> Any:
        """Runs the plan's backward on the arguments' device."""
        return self._backward(_flat(arguments, self.spec.BACKWARD_LISTED), self.kernels.on)

    def fake_backward(self, *arguments: Any) -> Any:
        """Runs the plan's backward without its kernels."""
        return self._backward(_flat(arguments, self.spec.BACKWARD_LISTED), _no_kernels)

    def _backward(self, arguments: Sequence[Any], on: Callable[[Any], Any]) -> Any:
        device = _device_of(arguments)
        with _on_device(device):
            k = on(device)
            packed = [] if self._packed is None else [self._packed.get(k, device, self._of_state(arguments))]
            result = tuple(_unshared(self.plan.call_backward(k, device, *packed, *arguments), arguments))
        return result if len(result) > 1 else result[0]

    def _of_state(self, arguments: Sequence[Any]) -> list[Any]:
        return list(arguments[len(arguments) - len(self._state) :])

    def save(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        """Saves what backward needs: arguments and outputs by reference, the rest as the operator returned it."""
        outs = output if isinstance(output, tuple) else (output,)
        inputs, count = _flat(inputs, self.spec.LISTED), self.spec.OUTPUTS
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*outs[count:])
        extra = iter(outs[count + len(self.spec.WRITTEN) :])
        kept: list[Any] = []
        for kind, place in self.spec.SAVED:
            if kind != "host":
                kept.append(inputs[place] if kind == "argument" else outs[place] if kind == "output" else next(extra))
        ctx.save_for_backward(*kept, *(inputs[i] for i, _, _, _ in self._state))
        ctx.host, ctx.outs = self._host(inputs), [(tuple(o.shape), o.dtype, o.device) for o in outs[:count]]
        self._note(ctx, inputs)

    def _host(self, inputs: Sequence[Any]) -> list[Any]:
        """The numbers among the saved items, from a run of the plan on meta tensors."""
        if not any(kind == "host" for kind, _ in self.spec.SAVED):
            return []
        meta = [i.to("meta") if isinstance(i, torch.Tensor) else i for i in inputs]
        packed = self.prepared(NoKernels(), torch.device("meta"), meta)
        _, saved = self.plan.call_forward(NoKernels(), torch.device("meta"), *packed, *meta)
        return [item for (kind, _), item in zip(self.spec.SAVED, saved, strict=True) if kind == "host"]

    def gradients(self, ctx: Any, *grads: Any) -> Any:
        """The backward rule for autograd: one gradient for each argument, None where there is none."""
        tensors = [t.contiguous() for t in ctx.saved_tensors]
        count = len(tensors) - len(self._state)
        given = [
            torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad.contiguous()
            for grad, (shape, dtype, device) in zip(grads, ctx.outs, strict=False)
        ]
        saved, host, state = iter(tensors[:count]), iter(ctx.host), tensors[count:]
        items = [next(host) if kind == "host" else next(saved) for kind, _ in self.spec.SAVED]
        operands = _listed([*given, *items, *state], self.spec.BACKWARD_LISTED)
        found = getattr(torch.ops, self.spec.NAME).backward(*operands)
        found = found if isinstance(found, (tuple, list)) else (found,)
        full, needed = self._stubs(ctx, given), _flat(ctx.needs_input_grad, self.spec.LISTED)
        for index, grad in zip(self.spec.GRADS, found, strict=True):
            full[index] = grad if needed[index] else None
        return _listed(full, self.spec.LISTED)

    # ------------------------------------------------------------ what there is no gradient for

    def note_shapes(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        """Records the shape and dtype of each argument, for the placeholders of missing gradients."""
        self._note(ctx, _flat(inputs, self.spec.LISTED))

    def _note(self, ctx: Any, flat: Sequence[Any]) -> None:
        ctx.shapes = [(tuple(i.shape), i.dtype) if isinstance(i, torch.Tensor) else None for i in flat]

    def refused(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Placeholders for gradients that the plan does not have.

        Tracing a module whose gradients are not needed must succeed; computing such a gradient raises NoBackward.
        """
        return _listed(self._stubs(ctx, grads), self.spec.LISTED)

    def _stubs(self, ctx: Any, grads: Sequence[Any]) -> list[Any]:
        grad = next(g for g in grads if g is not None)
        stub = getattr(torch.ops, self.spec.NAME).no_backward
        have = set(self.spec.GRADS if self.spec.SAVED is not None else ())
        needed = _flat(ctx.needs_input_grad, self.spec.LISTED)
        return [
            stub(grad, list(shape[0]), shape[1]) if wanted and shape is not None and i not in have else None
            for i, (wanted, shape) in enumerate(zip(needed, ctx.shapes, strict=True))
        ]

    def refuse(self, grad: Any, shape: Sequence[int], dtype: Any) -> Any:
        """Raises NoBackward."""
        raise NoBackward(
            f"{self.spec.NAME} has no backward for this gradient: run it under torch.no_grad(), or ship a "
            "program that has one"
        )


class PreparedState:
    """The results of `prepare` for the states that were used, recomputed when a parameter changes or is replaced."""

    def __init__(self, prepare: Callable[..., dict[str, Any]]) -> None:
        self._prepare = prepare
        self._known: list[tuple[Any, list[StorageWeakRef], dict[str, Any]]] = []

    def get(self, k: Any, device: Any, state: Sequence[Any]) -> dict[str, Any]:
        """The packed tensors for this state."""
        if device.type == "meta" or isinstance(k, NoKernels) or any(t.is_inference() for t in state):
            # without data or a version counter, a change of the state could not be noticed
            return self._prepare(k, device, *state)
        key = (device, *((t.data_ptr(), t._version, tuple(t.shape), t.stride()) for t in state))
        self._known = [e for e in self._known if not any(ref.expired() for ref in e[1])]
        for known, _, packed in self._known:
            if known == key:
                return packed
        made = self._prepare(k, device, *state)
        refs = [StorageWeakRef(t.untyped_storage()) for t in state]
        addresses = {t.data_ptr() for t in state}
        stale = [e for e in self._known if addresses & {entry[0] for entry in e[0][1:]}]
        self._known = [*(e for e in self._known if e not in stale), (key, refs, made)]
        return made


def _no_kernels(device: Any) -> NoKernels:
    return NoKernels()


def _flat(arguments: Sequence[Any], listed: Sequence[bool] | None) -> list[Any]:
    """An operator's arguments, or what it says of each, one by one."""
    if listed is None:
        return list(arguments)
    tensors, others = iter(arguments[0]), iter(arguments[1:])
    return [next(tensors) if one else next(others) for one in listed]


def _listed(flat: Sequence[Any], listed: Sequence[bool] | None) -> tuple[Any, ...]:
    """The inverse of `_flat`."""
    if listed is None:
        return tuple(flat)
    pairs = list(zip(flat, listed, strict=True))
    return ([item for item, one in pairs if one], *(item for item, one in pairs if not one))


def _device_of(arguments: Sequence[Any]) -> Any:
    """The device of the first tensor."""
    return next(a.device for a in arguments if isinstance(a, torch.Tensor))


def _on_device(device: Any) -> Any:
    """A context in which that GPU is the current one."""
    return torch.cuda.device(device) if device.type == "cuda" and torch.cuda.is_available() else torch.no_grad()


def _unshared(results: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """The results, copied where they share memory with an argument or another result, as an operator's must not."""
    seen = {a.untyped_storage()._cdata for a in arguments if isinstance(a, torch.Tensor)}
    out = []
    for tensor in results:
        tensor = tensor.clone() if tensor.untyped_storage()._cdata in seen else tensor
        seen.add(tensor.untyped_storage()._cdata)
        out.append(tensor)
    return out
