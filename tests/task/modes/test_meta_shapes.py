"""Batch norms on shapes alone: the results that torch finds, without its decomposition."""

import pytest
import torch
from torch.nn import functional as F

from hipwright.task.host.modes import meta_shapes
from hipwright.task.host.modes.meta_shapes import MetaShapes


def specs(training: bool, **changed) -> list[tuple]:
    made = {
        "given": torch.empty(3, 4, 5, 5, device="meta"),
        "mean": torch.empty(4, device="meta"),
        "variance": torch.empty(4, device="meta"),
        "weight": torch.empty(4, device="meta"),
        "bias": torch.empty(4, device="meta"),
    } | changed
    norm = torch.ops.aten.native_batch_norm(
        made["given"], made["weight"], made["bias"], made["mean"], made["variance"], training, 0.1, 1e-5
    )
    return [(tuple(one.shape), one.stride(), one.dtype, one.device.type) for one in norm]


CASES = [
    {},
    {"given": torch.empty(3, 4, 5, 5, device="meta").to(memory_format=torch.channels_last)},
    {"given": torch.empty(7, 4, device="meta")},
    {"given": torch.empty(3, 4, 5, 5, dtype=torch.bfloat16, device="meta")},
    {"weight": None, "bias": None},
    {"given": torch.empty(2, 5, 4, 5, device="meta").transpose(1, 2)},
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_results_are_torchs(case: int, training: bool) -> None:
    wanted = specs(training, **CASES[case])
    with MetaShapes():
        assert specs(training, **CASES[case]) == wanted


@pytest.mark.parametrize("training", [True, False])
def test_what_torch_refuses_is_refused(training: bool) -> None:
    wrong = torch.empty(5, device="meta")
    with MetaShapes():
        with pytest.raises(RuntimeError):
            specs(training, mean=wrong, variance=wrong)
        with pytest.raises(ValueError, match="more than 1 value"):
            F.batch_norm(torch.empty(1, 4, device="meta"), wrong[:4], wrong[:4], training=True)


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    fits = meta_shapes._fits
    monkeypatch.setattr(meta_shapes, "_fits", lambda *args: taken.append(fits(*args)) or taken[-1])
    with MetaShapes():
        F.batch_norm(torch.empty(2, 4, 3, device="meta"), *(torch.empty(4, device="meta") for _ in range(2)))
    assert taken == [True]
