"""Judges honest programs at a task's own size, on a device: by the rule of the device host, in this process.

The programs are the task's own module with its sums in other orders (orders.py), so nothing here is hostile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.honest.judged import HonestPair
from benchmarks.honest.orders import Reordered
from hipwright.errors import TaskError
from hipwright.records import TolerancePolicy
from hipwright.targets import TORCH_GPU
from hipwright.task.device.compare import LeafComparison, blocks_of
from hipwright.task.device.expect import DeviceExpectation, Expecting
from hipwright.task.device.inputs import spec_of
from hipwright.task.device.model import DeviceFile, allocated_bytes, give_back
from hipwright.task.host import state as states
from hipwright.task.host.reference import named_leaves
from hipwright.tensors import Tree
from hipwright.torchio import NAMES, map_torch
from hipwright.verify.expectation import NATIVE_SLACK
from hipwright.verify.gpu import budget as rules

FREE = 0.85  # of the device's free memory, for an expectation
_CPU_ROOM = 4 << 30


class TooLarge(TaskError):
    """Inputs and outputs are more than the limit."""


def judge_at_size(
    name: str, text: str, orders: Sequence[str], seed: int, device: torch.device, most_bytes: int
) -> list[HonestPair]:
    """One pair for each order that gives other bits than the library's own. Raises TooLarge, and TaskError where the
    task has no expectation on the device.
    """
    file = DeviceFile(f"{name}.py", text, device)
    torch.manual_seed(seed)
    args = file.inputs(seed, None if file.file.given else 0)
    state = states.build(file.model(), leaf=lambda tensor: tensor.detach().clone())
    held = [*state["params"].values(), *(tensor for _, tensor in named_leaves("", args))]
    if (nbytes := sum(t.numel() * t.element_size() for t in held)) > most_bytes:
        raise TooLarge(f"{nbytes >> 20} MiB of inputs and parameters")
    policy, room = TolerancePolicy(), _room(device)
    given = map_torch(args, lambda tensor: tensor.detach().clone())  # an expectation may nudge them in place
    making = Expecting(file, args, state, seed=seed, room=lambda: room, spoil=lambda: None)
    case = making.make(strict=True)
    if case.random or case.mutated or case.complex:
        raise TaskError("its results are drawn, written to inputs, or complex: not judged on a device")
    _settle(case, given, state, policy)
    plain = [tensor.clone() for tensor in _outputs(file, given, state)]
    found = [_pair(name, order, seed, file, given, state, case, plain) for order in orders]
    return [pair for pair in found if pair is not None]


def _pair(
    name: str,
    order: str,
    seed: int,
    file: DeviceFile,
    args: list[Any],
    state: Tree,
    case: DeviceExpectation,
    plain: list[torch.Tensor],
) -> HonestPair | None:
    pair = HonestPair(name, order, seed, cases=1)
    with _library(file.device), Reordered(order, seed):
        result = _outputs(file, args, state)
    if all(torch.equal(a, b) for a, b in zip(result, plain, strict=True)):
        return None
    for leaf, values in zip(case.leaves, result, strict=True):
        check = LeafComparison(leaf)
        for block in blocks_of(values):
            check.add(block)
        told = check.result()
        pair.worst = max(pair.worst, float(told["worst"]))
        if told["kind"] != "pass":
            message = f"{leaf.path}[{told['flat']}] is {told['got']}, expected {told['expected']}"
            pair.refused.append((f"given ({leaf.path})", float(told["worst"]), message))
    return pair


@contextmanager
def _library(device: torch.device) -> Iterator[None]:
    """Operators as those whose sums can be reordered: no fused attention, no convolutions of another library."""
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if device.type == TORCH_GPU:
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        torch.backends.mha.set_fastpath_enabled(False)
        yield


def _outputs(file: DeviceFile, args: list[Any], state: Tree) -> list[torch.Tensor]:
    """Outputs, and buffers afterwards, in the order of an expectation's leaves."""
    model = file.model(state)
    with torch.no_grad(), file.device:
        result = model(*map_torch(args, lambda tensor: tensor.clone()))
    kept = [tensor for path, tensor in states.buffers(model) if path in state["buffers"]]
    return [*(tensor.detach() for _, tensor in named_leaves("output", result)), *kept]


def _settle(case: DeviceExpectation, args: list[Any], state: Tree, policy: TolerancePolicy) -> None:
    """Sets the budgets, as `DeviceReference` does."""
    specs = map_torch(args, spec_of)
    held = {"params": rules.without_values({path: spec_of(t) for path, t in state["params"].items()})}
    c = policy.c * (NATIVE_SLACK if case.reference == "native" else 1.0)
    for leaf in case.leaves:
        told = {"dtype": NAMES[leaf.dtype], "shape": list(leaf.shape), "float": not leaf.exact}
        leaf.settle(rules.budget(told, specs, held, c))


def _room(device: torch.device) -> int:
    if device.type != TORCH_GPU:
        return _CPU_ROOM
    allocated_bytes(device)
    give_back(device)
    return int(FREE * torch.cuda.mem_get_info(device)[0])


def timed(name: str, text: str, orders: Sequence[str], seed: int, device: torch.device, most_bytes: int) -> Any:
    """(pairs, why there are none or "", seconds)."""
    start, why = time.perf_counter(), ""
    pairs: list[HonestPair] = []
    try:
        pairs = judge_at_size(name, text, orders, seed, device, most_bytes)
    except (TaskError, torch.OutOfMemoryError) as error:
        why = str(error)[:200]
    give_back(device)
    return pairs, why, time.perf_counter() - start
