"""Single calls on a device: the nudge is that of verify.inputs, layouts survive, side effects are reported."""

import numpy as np
import pytest
import torch
from task_files import FILES

from hipwright.errors import TaskError
from hipwright.task.device.expect import Expecting
from hipwright.task.device.model import DeviceFile, ModelCall, moved_to, nudge, widened
from hipwright.task.device.parts import cut, same_rows
from hipwright.task.device.side import COMPILED, CopySide, ModelSide
from hipwright.task.host.state import build
from hipwright.torchio import from_torch
from hipwright.verify import inputs as draws

CPU, META = torch.device("cpu"), torch.device("meta")


def _file(body: str, get: str = "[torch.ones(4)]") -> DeviceFile:
    text = f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
    return DeviceFile("task.py", f"{text}def get_inputs():\n    return {get}\n", CPU)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4000,), (40, 300), (7, 5, 50)])
@pytest.mark.parametrize("equal", [False, True])
def test_the_nudge_moves_as_far_as_the_oracles(dtype, shape, equal):
    like = (torch.full(shape, 1.5) if equal else torch.randn(shape)).to(dtype)
    theirs = np.abs(draws.nudge(from_torch(like), 1).to_f64() / like.double().numpy() - 1)
    ours = like.double()
    nudge(iter([(ours, like)]), torch.Generator().manual_seed(1))
    ours = np.abs(ours.numpy() / like.double().numpy() - 1)
    for statistic in (np.mean, np.std, np.max):
        assert statistic(ours) == pytest.approx(statistic(theirs), rel=0.15)


def test_the_nudge_leaves_integers_and_special_values_and_moves_shared_memory_once():
    values = torch.tensor([float("inf"), float("nan"), 0.0, 1.0])
    whole, index = values.double(), torch.arange(4)
    nudge(iter([(whole, values), (whole[:], values), (index, index)]), torch.Generator().manual_seed(0))
    assert whole[0] == float("inf") and whole[1].isnan() and whole[2] == 0 and torch.equal(index, torch.arange(4))
    assert 0 < abs(float(whole[3]) - 1) < 1.6 * 2**-24  # two nudges would move it further


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("kinds", "moves"), [((-1, 1), False), ((0, 1, 2, 3), False), ((1,), True), ((0.5, 1), True)])
def test_classes_do_not_move_on_either_side(dtype, kinds, moves):
    """A value that is seen late is a value too: the last element decides as the first do."""
    like = torch.tensor(kinds).repeat(5000).to(dtype)
    for changed in (False, True):
        if changed:
            like[-1] = 1.5
        ours = like.double().clone()
        nudge(iter([(ours, like)]), torch.Generator().manual_seed(1), categories=True)
        theirs = draws.nudge(from_torch(like), 1).to_f64()
        for found in (ours.numpy(), theirs):
            assert bool((found != like.double().numpy()).any()) == (moves or changed)
        parameters = like.double().clone()
        nudge(iter([(parameters, like)]), torch.Generator().manual_seed(1))
        assert not torch.equal(parameters, like.double())
    assert not np.array_equal(draws.nudge(from_torch(like), 1, categories=False).to_f64(), like.double().numpy())


def test_a_tensor_moves_with_its_strides():
    for tensor in (torch.randn(4, 6).t(), torch.randn(3, 1).expand(3, 5), torch.randn(40)[3:30:4]):
        moved = moved_to(tensor, META)
        assert moved.stride() == tensor.stride() and moved.shape == tensor.shape and moved.device.type == "meta"


def test_widened_arguments_are_never_the_tasks_own():
    args = [torch.randn(3), torch.randn(3, dtype=torch.float64), torch.arange(3)]
    wide = widened(args)
    assert [t.dtype for t in wide] == [torch.float64, torch.float64, torch.int64]
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(args[:2], wide[:2], strict=True))


def test_a_call_tells_what_it_did():
    x = torch.randn(8)
    call = ModelCall(_file("return x, x[:4], x + 1"), _file("return x, x[:4], x + 1").model(), [x])
    assert call.aliases() == [["output[0]", "inputs[0]"], ["output[1]", "inputs[0]"], ["output[1]", "output[0]"]]
    assert not call.mutated and not call.drew
    file = _file("x.add_(1); return torch.rand(3) + x.sum()")
    call = ModelCall(file, file.model(), [torch.zeros(3)])
    assert call.mutated == ["inputs[0]"] and call.drew


def test_a_batch_is_cut_only_where_its_outputs_are():
    x, y, table = torch.randn(8, 3), torch.randn(8, 5), torch.randn(100, 3)
    assert cut([x, y], [("output", x)]).which == frozenset({0, 1})
    assert cut([table, x], [("output", x)]) is None  # the largest input is no batch of the output
    assert cut([torch.randn(9, 9), torch.randn(9, 9)], [("output", torch.randn(9, 9))]).which == frozenset({0})
    assert cut([x], [("output", torch.randn(()))]) is None
    assert same_rows(x[:4], x[:4] * (1 + 2**-24)) and not same_rows(x[:4], x[:4] * (1 + 1e-5))
    assert not same_rows(x[:4], x[:3])
    broken = x[:4].clone()
    broken[1, 1] = torch.nan
    assert not same_rows(x[:4], broken)


@pytest.mark.parametrize(
    ("formula", "room"),
    [("x @ x.t()", 130_000), ("x.sum(0)", 30_000), ("x.cumsum(0)", 130_000), ("x - x.mean(0)", 130_000)],
)
def test_what_mixes_rows_has_no_parts(formula, room):
    file = _file(f"return {formula}")
    x = torch.randn(64, 64)
    making = Expecting(file, [x], build(file.model()), seed=1, room=lambda: room, spoil=lambda: None)
    case = making.make(strict=True)
    assert case.reference == "native" and case.moved
    assert "rows of the batch depend on each other, so the reference has no parts" in case.notes


def test_a_model_that_names_no_device_is_run_under_the_default_one():
    file = _file("if torch.get_default_device().type != 'meta': raise ValueError('not the default')\n        return x")
    file.device = META
    side = ModelSide(file, {"params": {}, "buffers": {}}, [[torch.ones(2)]], mode="eager", graph=False, pool=None)
    assert side.notes and "default-device" in side.notes[0]


def test_slots_take_turns_across_blocks():
    seen = []
    file = _file("return x.log_it()")
    file.file.model_class.forward = lambda self, x: seen.append(int(x))
    slots = [[torch.full((1,), float(i))] for i in range(3)]
    side = ModelSide(file, {"params": {}, "buffers": {}}, slots, mode="eager", graph=True, pool=None)
    seen.clear()
    side.block(4)
    side.block(3)
    assert seen == [0, 1, 2, 0, 1, 2, 0]
    assert side.prepare(1)["why"] == "the cpu has no graphs"


def test_a_copy_moves_its_bytes_over_all_slots():
    side = CopySide(1001, 3, torch.device("cpu"), graph=True)
    call = side._rotation._call
    copies = [call(slot) for slot in range(3)]
    assert all(copy.numel() == 512 and copy.dtype == torch.uint8 for copy in copies)  # half of it, in 16-byte steps
    assert len({copy.data_ptr() for copy in copies}) == 3
    assert side.prepare(2)["policy"] == "stream" and side.block(4)["calls"] == 4 and len(side.latency(2)) == 2


class _Way:
    """A way to copy with given milliseconds a call, after a first measurement that differs."""

    def __init__(self, ms: float, first_ms: float) -> None:
        self.ms, self.first_ms, self.policy = ms, first_ms, "graph"

    def prepare(self, calls: int) -> dict:
        return {"policy": "graph", "why": "", "call_ms": self.first_ms}

    def block(self, calls: int) -> dict:
        return {"calls": calls, "device_ms": calls * self.ms, "host_ms": 0.0}

    def launch_on_stream(self, why: str) -> None:
        self.policy = "stream"


def test_a_copy_goes_the_faster_way():
    for times in ((0.400, 0.260), (0.260, 0.400)):
        side = CopySide(1 << 10, 2, torch.device("cpu"), graph=True)
        side._ways = [_Way(times[0], 0.5), _Way(times[1], 0.6)]
        assert side.prepare(1)["call_ms"] == pytest.approx(0.260)
        assert side.block(10)["device_ms"] == pytest.approx(2.60)
        side.stream("no room")
        assert {way.policy for way in side._ways} == {"stream"}


def test_max_autotune_leaves_the_graphs_to_the_rotation():
    assert COMPILED["max-autotune"]["mode"] == "max-autotune-no-cudagraphs"
    assert all(options["dynamic"] is False for options in COMPILED.values())


def test_inputs_written_by_an_operator_that_counts_no_version_are_known():
    file = _file("return torch.nn.functional.batch_norm(x[0], x[1], x[2], training=True)")
    args = [torch.randn(8, 3), torch.zeros(3), torch.ones(3)]
    assert not ModelCall(file, file.model(), [[t.clone() for t in args]]).mutated
    for written in ([], ["inputs[0][1]"]):
        drawn = [[t.clone() for t in args]]
        making = Expecting(
            file, drawn, build(file.model()), seed=1, room=lambda: 1 << 30, spoil=lambda: None, written=written
        )
        assert making.make(strict=True).mutated == written


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_an_eight_bit_float_is_expected_in_parts_too(dtype):
    file = _file(f"return (x / x.abs().amax(-1, keepdim=True)).to({dtype})")
    x = torch.randn(64, 256)
    for room in (1 << 30, 300_000):
        making = Expecting(file, [x], build(file.model()), seed=1, room=lambda room=room: room, spoil=lambda: None)
        case = making.make(strict=True)
        assert case.reference.startswith("float64" if room > 1 << 20 else "float64 in "), (case.reference, case.notes)
        (leaf,) = case.leaves
        leaf.settle({"c": 3.0, "floor": 0.0625, "least": 1e-9, "factor": 3.0, "element": 4.0, "row_length": 256})
        error = (leaf.expected(0, leaf.numel) - file.model()(x).double().reshape(-1)).abs()
        assert bool((error <= leaf.budget(0, leaf.numel)).all())


def test_a_value_half_way_between_whole_numbers_is_not_judged():
    file = _file("return (x / x.abs().amax(-1, keepdim=True) * 127).round().to(torch.int8)")
    x = torch.randint(-127, 128, (64, 256)).float()
    x[:, 0], x[:, 1] = 127.0, 63.5  # no rounding moves these, another order of the same operators may
    x[:, 2] = 63.5 * (1 + 2**-22)
    making = Expecting(file, [x], build(file.model()), seed=1, room=lambda: 1 << 30, spoil=lambda: None)
    (leaf,) = making.make(strict=True).leaves
    judged = leaf.judged.view(64, 256)
    assert not judged[:, 1:3].any() and judged[:, 3:].float().mean() > 0.9 and judged[:, 0].all()


def test_memory_that_runs_out_on_the_device_is_not_sought_on_the_cpu():
    """Not every library raises torch's own error for it, and the CPU's want of memory would hide the device's."""
    file = _file("return x")
    file.device = META  # any that is not the CPU
    for first, then, told in [
        (RuntimeError("CUDA error: out of memory"), None, "CUDA error"),
        (torch.OutOfMemoryError("CUDA out of memory"), None, "CUDA out of memory"),
        (RuntimeError("no such kernel"), RuntimeError("DefaultCPUAllocator: can't allocate memory"), "no such kernel"),
        (RuntimeError("no such kernel"), RuntimeError("a fault of the file"), "a fault of the file"),
    ]:
        raised = iter([first, then])

        def fails(raised=raised):
            error = next(raised)
            assert error is not None, "it was tried again"
            raise error

        with pytest.raises(TaskError, match=told):
            file.call(lambda fails=fails: file.file.guarded(fails, "get_inputs()"))


def test_a_tensor_keeps_its_alignment_on_the_device():
    """Operators that refuse inputs at odd places refuse them there too."""
    storage = torch.arange(600.0)
    for start, kept in ((0, 0), (1, 1), (3, 3), (64, 0), (65, 1)):
        moved = moved_to(storage[start : start + 8].view(2, 4).t(), META)
        assert moved.storage_offset() == kept and moved.stride() == (1, 4) and moved.shape == (4, 2)


def test_a_table_that_is_built_for_the_inputs_sizes_stays_as_it_was():
    file = DeviceFile("task.py", (FILES / "cache_of_sizes.py").read_text(), CPU)
    x = torch.randn(5, 40)
    making = Expecting(file, [x], build(file.model()), seed=1, room=lambda: 1 << 30, spoil=lambda: None)
    case = making.make(strict=True)
    places = next(leaf for leaf in case.leaves if leaf.path == "buffer places")
    assert places.shape == (1, 1) and not places.evidence
