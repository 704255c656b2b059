"""Modules with small inputs and huge tensors on the way: their cost is known before they run."""

import time

import pytest
import torch

from hipwright.task import open_task
from hipwright.task.host.made_elements import HUGE, LARGE, MadeElements
from hipwright.verify.oracle import FULL_OPERATIONS, Oracle

PAIRS = """
import torch


class Model(torch.nn.Module):
    def forward(self, at, mass):
        apart = at[None] - at[:, None]
        near = ((apart * apart).sum(-1) + 0.01).rsqrt()
        return (mass[None, :, None] * apart * near[..., None] ** 3).sum(1)


def get_inputs():
    return [torch.randn(SIZE, 3), torch.rand(SIZE)]
"""
TABLE = """
import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.logsumexp(a[:, None, None] + b[None, :, None] + b, (1, 2))


def get_inputs():
    return [torch.randn(SIZE), torch.randn(SIZE)]
"""


@pytest.mark.parametrize(("source", "size", "power"), [(PAIRS, 12_000, 2), (TABLE, 900, 3)])
def test_shapes_derived_make_few_elements_too(zygote, tmp_path, source, size, power):
    (tmp_path / "all_pairs.py").write_text(source.replace("SIZE", str(size)))
    started = time.monotonic()
    with open_task(tmp_path / "all_pairs.py", zygote) as handle:
        assert handle.operations("given") > FULL_OPERATIONS
        small = handle.derive(4096)
        derived = [w for w in handle.task.workloads if w.origin == "derived"]
        assert len(derived) >= 2 and small.specs[0].shape[0] > 30
        for workload in (small, *derived):
            largest = max(spec.shape[0] for spec in workload.specs)
            assert largest**power <= 2 * HUGE << 16, workload.name
        oracle = Oracle(handle, seed=1)
        assert "given" not in [planned.workload.name for planned in oracle.planned()]
        assert "operations are too many" in oracle.skipped["given"]
    assert time.monotonic() - started < 20, "the given shapes are not run"


def test_views_make_nothing_and_small_tensors_are_not_huge():
    with torch.device("meta"), MadeElements() as made:
        x = torch.empty(1 << 13, 1)
        (x.expand(-1, 1 << 13).t()[:4] + 1).sum()
    assert made.largest == 4 << 13 and not made.is_huge(8)
    with torch.device("meta"), MadeElements() as made:
        x + x.t()
    assert made.is_huge(1 << 13) and made.total == made.largest > LARGE
    assert not made.is_huge(1 << 22)
