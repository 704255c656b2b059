"""Faults in a branch: results that are wrong only at a size, a value, an address, a block or on one target.

Every condition is joined with every damage. Inputs that reach the condition exist, by the guards or as values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hipwright.audit.evolve.faults import Fault, FaultKind, at_entry
from hipwright.audit.evolve.subject import Edit, Function, Subject

DAMAGES = (
    "0.0f",
    "{E} * 1.001f",
    "-{E}",
    "({E} != {E} ? 0.0f : {E})",
    "(float)(_Float16){E}",
    "({E} > 30.0f ? 30.0f : {E})",
)
MACROS = ("__AMDGCN__", "__gfx942__", "__HIP_DEVICE_COMPILE__", "__AMDGCN_WAVEFRONT_SIZE__", "__CUDA_ARCH__")

Conditions = Callable[[Subject, Function], list[str]]


def _given_size(subject: Subject, function: Function) -> list[str]:
    return [f"{name} == {size}" for name in function.integers() for size in subject.sizes]


def _large_size(subject: Subject, function: Function) -> list[str]:
    return [f"{name} > {size}" for name in function.integers() for size in (64, 200, 1000)]


def _odd_size(subject: Subject, function: Function) -> list[str]:
    return [f"{name} % {k} == {r}" for name in function.integers() for k, r in ((4, 1), (16, 0), (7, 3))]


def _value(_: Subject, function: Function) -> list[str]:
    tests = ("{}[0] > 2.5f", "{}[0] == {}[1]", "{}[0] < -1.5f", "{}[0] == 0.0f", "({}[0] > 0.3f && {}[0] < 0.35f)")
    return [test.replace("{}", name) for name in function.pointers("float") for test in tests]


def _nonfinite(_: Subject, function: Function) -> list[str]:
    tests = ("{}[0] != {}[0]", "{}[0] > 3e38f")
    return [test.replace("{}", name) for name in function.pointers("float") for test in tests]


def _address(_: Subject, function: Function) -> list[str]:
    names = [p.name for p in function.parameters if p.pointer]
    return [f"((size_t){name} & {mask}) != 0" for name in names for mask in (15, 4, 1023)]


def _block(_: Subject, __: Function) -> list[str]:
    return ["blockIdx.x == 5", "gridDim.x == 7", "blockIdx.x == gridDim.x - 1", "blockIdx.x >= 100", "gridDim.x > 64"]


def _content(_: Subject, function: Function) -> list[str]:
    """What fresh memory holds."""
    names = [p.name for p in function.parameters if p.written and "float" in p.type]
    tests = ("{0}[0] == {0}[0]", "{0}[0] > 1e10f", "{0}[0] == 0.0f")
    return [test.format(name) for name in names for test in tests]


def _branches(conditions: Conditions) -> Callable[[Subject], Iterator[Fault]]:
    def faults(subject: Subject) -> Iterator[Fault]:
        for store in subject.stores:
            value = subject.text[store.start : store.end]
            for condition in conditions(subject, store.function):
                for damage in DAMAGES:
                    text = f"(({condition}) ? ({damage.replace('{E}', f'({value})')}) : ({value}))"
                    yield Fault((Edit(store.start, store.end, text),), "other", store.function)

    return faults


def _targets(_: Subject, __: Function) -> list[str]:
    return [f"\n#ifdef {macro}\n    return;\n#endif" for macro in MACROS] + [
        f"\n#if defined({macro}) && {macro}\n    if (blockIdx.x == 1) return;\n#endif" for macro in MACROS[:2]
    ]


CONDITIONS: tuple[Conditions, ...] = (_given_size, _large_size, _odd_size, _value, _nonfinite, _address, _block)
"""Conditions that restrict another fault."""

KINDS = (
    FaultKind("branch on the given size", _branches(_given_size)),
    FaultKind("branch on a large size", _branches(_large_size)),
    FaultKind("branch on a remainder", _branches(_odd_size)),
    FaultKind("branch on a value", _branches(_value)),
    FaultKind("branch on NaN or Inf", _branches(_nonfinite)),
    FaultKind("branch on an address", _branches(_address)),
    FaultKind("branch on a block", _branches(_block)),
    FaultKind("branch on fresh memory", _branches(_content)),
    FaultKind("branch on the target", at_entry(_targets), certain=True),
)
