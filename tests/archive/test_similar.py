"""Verified programs of earlier runs: of the same task and of similar tasks, from a real archive."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from archive_contract import a_run

from hipwright.archive import Archive, Confirmed, Evaluated, LogEntry, Proposed
from hipwright.archive.code_features import KERNEL_FEATURES, kernel_features, snake, task_features, tokens
from hipwright.archive.similar import SimilarProgram, known_for, similar
from hipwright.archive.text_similarity import Text, cosine, rank
from hipwright.records import Evaluation, Expansion, Program, Task

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""
BODIES = {
    "lds": "__shared__ float slot[8]; __syncthreads();",
    "wave": "v += __shfl_xor(v, 1);",
    "vector": "float4 v = x[i];",
    "plain": "y[i] = x[i];",
}


def a_task(name: str, expression: str, shape: str = "64, 512") -> Task:
    return Task(name=name, source=SOURCE.format(expression=expression, shape=shape), workloads=())


def kernel(name: str, body: str) -> Program:
    return Program(
        text=f"HIP = r'''\nextern \"C\" __global__ void {name}(const float* x, float* y) {{ {BODIES[body]} }}\n'''\n"
    )


SOFTMAX = a_task("softmax", "torch.softmax(x, dim=-1)")
LOG_SOFTMAX = a_task("log_softmax", "F.log_softmax(x, dim=-1)")
CONV = a_task("conv", "F.conv2d(x, x)", "4, 8, 32, 32")
GEMM = a_task("gemm", "torch.matmul(x, x.T)")
CUMSUM = a_task("cumsum", "torch.cumsum(x, dim=1)")
RELU = a_task("relu", "torch.relu(x) * 2.0")


class Filler:
    """Writes runs as a search logs them."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.count = 0

    def run(
        self,
        task: Task,
        scores: Sequence[float | None],
        *,
        body: str | Sequence[str] = "lds",
        kind: str = "estimate",
        targets: tuple[str, ...] = ("gfx942", "cpu"),
        refused: int | None = None,
        prefix: str = "k",
    ) -> list[str]:
        """Writes one run with a program per score (None: failed); returns the programs' keys."""
        self.count += 1
        name = f"r{self.count:04}"
        bodies = [body] * len(scores) if isinstance(body, str) else body
        programs = [kernel(f"{prefix}{n}", b) for n, b in enumerate(bodies)]
        entries = []
        for n, (program, score) in enumerate(zip(programs, scores, strict=True)):
            expansion = Expansion(number=n, operator="mutate")
            proposed = Proposed(expansion=expansion, round=0, program=program.key, choices={"BLOCK": 64 * (n + 1)})
            entries.append(LogEntry("proposed", n, proposed.to_dict()))
            entries.append(
                LogEntry("evaluated", n, Evaluated(evaluation=self.judged(task, program, score, kind)).to_dict())
            )
        if refused is not None:
            again = self.judged(task, programs[refused], None, kind)
            confirmed = Confirmed(program=programs[refused].key, passed=False, evaluation=again)
            entries.append(LogEntry("confirmed", refused, confirmed.to_dict()))
        self.archive.begin_run(a_run(name, task=task.key, targets=targets), {"task_name": task.name}, [task])
        self.archive.append_all(name, entries, programs)
        return [program.key for program in programs]

    def judged(self, task: Task, program: Program, score: float | None, kind: str) -> Evaluation:
        fields: dict[str, Any] = {"status": "pass", "score": score, "score_kind": kind}
        if score is None:
            fields = {"status": "wrong_value", "fault": "candidate"}
        return Evaluation(task=task.key, program=program.key, **fields)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path) as opened:
        yield opened


@pytest.fixture
def fill(archive: Archive) -> Filler:
    return Filler(archive)


def tasks(found: Sequence[SimilarProgram]) -> list[str]:
    return [known.task_name for known in found]


# ---------------------------------------------------------------- tasks that are alike


def test_an_empty_archive_knows_nothing(archive: Archive) -> None:
    assert similar(archive, SOFTMAX.source, targets=("gfx942",), k=4) == []
    assert known_for(archive, SOFTMAX.key, ("gfx942",), 4) == []


def test_a_softmax_finds_softmax_like_programs_first(archive: Archive, fill: Filler) -> None:
    for number, task in enumerate((CONV, GEMM, RELU, LOG_SOFTMAX, CUMSUM)):
        fill.run(task, [10.0, 5.0], prefix=f"t{number}_")
    found = similar(archive, SOFTMAX.source, targets=("gfx942",), k=5)
    assert tasks(found)[0] == "log_softmax"
    assert found[0].similarity > 1.5 * found[1].similarity
    assert all(a.similarity >= b.similarity for a, b in pairwise(found))
    fill.run(SOFTMAX, [10.0], prefix="own")
    assert tasks(similar(archive, SOFTMAX.source, targets=("gfx942",), k=2)) == ["softmax", "log_softmax"]
    again = similar(archive, SOFTMAX.source, targets=("gfx942",), k=5, exclude_task=SOFTMAX.key)
    assert "softmax" not in tasks(again) and tasks(again)[0] == "log_softmax"


@pytest.mark.parametrize("task", [GEMM, CONV, CUMSUM, RELU], ids=lambda task: task.name)
def test_each_kind_of_task_finds_its_own_kind(archive: Archive, fill: Filler, task: Task) -> None:
    likes = {
        "gemm": a_task("linear", "F.linear(x, x)"),
        "conv": a_task("conv3", "F.conv_transpose2d(F.conv2d(x, x), x)", "2, 3, 16, 16"),
        "cumsum": a_task("cumprod", "torch.cumprod(x, dim=1)"),
        "relu": a_task("gelu", "F.gelu(x) + 1.0"),
    }
    for number, like in enumerate(likes.values()):
        fill.run(like, [3.0], prefix=f"t{number}_")
    assert tasks(similar(archive, task.source, targets=("gfx942",), k=1)) == [likes[task.name].name]


def test_only_verified_programs_count(archive: Archive, fill: Filler) -> None:
    keys = fill.run(SOFTMAX, [9.0, None, 3.0, 6.0], body=("lds", "wave", "vector", "plain"), refused=2)
    found = similar(archive, SOFTMAX.source, targets=("gfx942",), k=9)
    assert [known.program for known in found] == [keys[3], keys[0]]
    assert [known.program for known in known_for(archive, SOFTMAX.key, ("gfx942",), 9)] == [keys[3], keys[0]]
    fill.run(SOFTMAX, [8.0], body="vector", prefix="other")
    assert len(known_for(archive, SOFTMAX.key, ("gfx942",), 9)) == 3


def test_a_refusal_in_one_run_counts_in_all(archive: Archive, fill: Filler) -> None:
    fill.run(SOFTMAX, [9.0])
    assert len(known_for(archive, SOFTMAX.key, ("gfx942",), 9)) == 1
    fill.run(SOFTMAX, [9.0], refused=0)
    assert known_for(archive, SOFTMAX.key, ("gfx942",), 9) == []
    fill.run(LOG_SOFTMAX, [9.0])  # of another task the same program may be right
    assert tasks(similar(archive, SOFTMAX.source, targets=("gfx942",), k=9)) == ["log_softmax"]


def test_what_is_told_of_a_program(archive: Archive, fill: Filler) -> None:
    keys = fill.run(SOFTMAX, [None, 12.0, 4.0], body=("plain", "lds", "wave"))
    (best, first) = similar(archive, SOFTMAX.source, targets=("gfx942",), k=2)
    assert (best.program, best.task, best.score, best.score_kind) == (keys[2], SOFTMAX.key, 3.0, "estimate")
    assert (best.microseconds, best.choices) == (4.0, {"BLOCK": 192})
    assert best.features == {"shuffle": 1.0} and first.features == {"lds": 1.0, "barrier": 1.0}
    assert first.score == 1.0 and best.similarity == first.similarity == 1.0
    assert archive.program(best.program).text.count("__shfl_xor") == 1


def test_further_programs_of_a_task_are_of_another_kind(archive: Archive, fill: Filler) -> None:
    keys = fill.run(SOFTMAX, [9.0, 8.0, 7.0, 6.0], body=("wave", "lds", "lds", "lds"))
    found = similar(archive, SOFTMAX.source, targets=("gfx942",), k=4)
    assert [known.program for known in found] == [keys[3], keys[0]]


def test_runs_for_other_gpus_are_left_out(archive: Archive, fill: Filler) -> None:
    fill.run(SOFTMAX, [9.0], targets=("gfx950", "cpu"))
    fill.run(LOG_SOFTMAX, [9.0], targets=("gfx942",))

    def found(*targets: str) -> list[str]:
        return tasks(similar(archive, SOFTMAX.source, targets=targets, k=9))

    assert found("gfx942", "cpu") == ["log_softmax"]
    assert found("gfx1100", "cpu") == []
    assert found("gfx950", "gfx942") == found("cpu") == ["softmax", "log_softmax"]


def test_no_figure_is_no_score(archive: Archive, fill: Filler) -> None:
    task = a_task("bare", "torch.softmax(x, 0)")
    program = kernel("bare", "lds")
    bare = Evaluation(task=task.key, program=program.key, status="pass")
    archive.begin_run(a_run("bare", task=task.key), {"task_name": "bare"}, [task])
    archive.append_all("bare", [LogEntry("evaluated", 0, Evaluated(evaluation=bare).to_dict())], [program])
    (known,) = known_for(archive, task.key, ("gfx942",), 3)
    assert (known.score, known.score_kind, known.microseconds, known.choices) == (0.0, "none", None, {})


def test_tasks_whose_text_is_not_stored_are_left_out(archive: Archive, fill: Filler) -> None:
    archive.begin_run(a_run("old", task="not stored"))
    program = kernel("old", "lds")
    judged = fill.judged(SOFTMAX, program, 3.0, "estimate")
    archive.append_all("old", [LogEntry("evaluated", 0, Evaluated(evaluation=judged).to_dict())], [program])
    assert similar(archive, SOFTMAX.source, targets=("gfx942",), k=3) == []
    assert len(known_for(archive, "not stored", ("gfx942",), 3)) == 1


# ---------------------------------------------------------------- the same task


def test_known_programs_are_the_fastest_and_each_once(archive: Archive, fill: Filler) -> None:
    first = fill.run(SOFTMAX, [9.0, 5.0, 7.0])
    fill.run(SOFTMAX, [6.0, 5.5], prefix="k")  # the same texts as the first two of the first run
    fill.run(LOG_SOFTMAX, [1.0], prefix="other")
    found = known_for(archive, SOFTMAX.key, ("gfx942",), 9)
    assert [(known.program, known.microseconds) for known in found] == [
        (first[1], 5.0),
        (first[0], 6.0),
        (first[2], 7.0),
    ]
    assert found[0].score == 1.8 and found[0].similarity == 1.0
    assert known_for(archive, SOFTMAX.key, ("gfx942",), 1) == found[:1]


def test_measured_programs_come_before_estimated_ones(archive: Archive, fill: Filler) -> None:
    fill.run(SOFTMAX, [1.0], prefix="e")
    measured = fill.run(SOFTMAX, [50.0, 40.0], prefix="m", kind="measured")
    found = known_for(archive, SOFTMAX.key, ("gfx942",), 9)
    assert [known.program for known in found][:2] == measured[::-1]
    assert [known.score_kind for known in found] == ["measured", "measured", "estimate"]


def test_ties_go_by_key(archive: Archive, fill: Filler) -> None:
    keys = fill.run(SOFTMAX, [5.0] * 6)
    assert [known.program for known in known_for(archive, SOFTMAX.key, ("gfx942",), 9)] == sorted(keys)
    for number in range(4):  # four tasks that differ in their name only
        fill.run(a_task(f"same{number}", "torch.cumsum(x, 0)"), [2.0], prefix=f"p{number}_")
    found = similar(archive, CUMSUM.source, targets=("gfx942",), k=4)
    assert len(found) == 4 and [k.program for k in found] == [k.program for k in sorted(found, key=lambda k: k.task)]


def test_a_thousand_programs_are_searched_within_a_second(archive: Archive, fill: Filler) -> None:
    expressions = [f"F.gelu(x) * {n}.0 + torch.softmax(x, {n % 2}).sum(dim={n % 3})" for n in range(100)]
    for number, expression in enumerate(expressions):
        fill.run(a_task(f"t{number}", expression), [10.0 - n for n in range(10)], prefix=f"p{number}_")
    start = time.process_time()
    found = similar(archive, SOFTMAX.source, targets=("gfx942",), k=8)
    assert len(found) == 8 and time.process_time() - start < 1.0


# ---------------------------------------------------------------- features


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LayerNorm", "layer_norm"),
        ("Conv2d", "conv"),
        ("conv2d", "conv"),
        ("ReLU", "relu"),
        ("BatchNorm1d", "batch_norm"),
        ("AdaptiveAvgPool2d", "adaptive_avg_pool"),
        ("LeakyReLU", "leaky_relu"),
        ("log_softmax", "log_softmax"),
        ("MultiheadAttention", "multihead_attention"),
        ("exp2", "exp2"),
        ("GELU", "gelu"),
    ],
)
def test_modules_and_functions_of_one_operator_have_one_name(name: str, expected: str) -> None:
    assert snake(name) == expected


def test_features_of_a_task() -> None:
    source = SOURCE.format(expression="torch.softmax(x.half() @ x.T, dim=-1) + 1", shape="64, 16384")
    features = task_features(source)
    assert {"op:softmax", "op:matmul", "op:add", "family:softmax", "family:gemm", "family:reduction"} <= set(features)
    assert {"dtype:float16", "rank:2", "width:long"} <= set(features)
    assert not any(name.startswith("op:randn") or name == "op:forward" for name in features)
    assert "dtype:float32" in task_features(SOFTMAX.source)


@pytest.mark.parametrize("text", ["", "def f(:", "\x00", "(" * 5000, "class", "softmax \ud800", "1 +" * 20000])
def test_any_text_has_features_and_words(text: str) -> None:
    assert isinstance(task_features(text), dict) and isinstance(tokens(text), list)


def test_features_of_prose() -> None:
    assert {"op:softmax", "dtype:float16", "width:long"} <= set(task_features("row softmax over 32768 columns, fp16"))


def test_features_of_kernels() -> None:
    assert kernel_features("y = x @ w\n") == {"library": 1.0} == kernel_features("F.linear(x, w)")
    loop = "for (long i = a; i < n; i += (long)gridDim.x * 64) unsafeAtomicAdd(p, v);"
    assert set(kernel_features(loop)) == {"grid_stride", "atomic"}
    assert set(kernel_features("__builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0)")) == {"mfma"}
    assert kernel_features("int float4_of_a_kind_2;") == {}


@pytest.mark.parametrize(
    "text",
    [
        *("__shfl_xor(v, 1)", "__builtin_amdgcn_update_dpp(0)", "__builtin_amdgcn_ds_bpermute(0)"),
        *("float4 v", "uint2 v", "double4 v", "Pack<float, 4>", "load_tile<4>(x)", "half2 v", "__nv_bfloat162 v"),
        *("ext_vector_type(4)", "atomicAdd(p, v)", "unsafeAtomicAdd(p, v)", "__syncthreads();"),
        *("F.linear(x)", "torch.conv2d(x)", "torch.scaled_dot_product_attention(q)", "(a) @ b", "F.einsum('i', x)"),
        *(
            "__shared__ float a[4];",
            "i += 4 * gridDim.x",
            "_wmma_f32",
            "float x;",
            "xatomicAdd(p)",
            "a@b",
            "myF.conv(x)",
        ),
    ],
)
def test_features_are_found_as_by_their_patterns_alone(text: str) -> None:
    for given in (text, f"x {text} y", f"x{text}"):
        assert kernel_features(given).keys() == {n for n, p in KERNEL_FEATURES.items() if p.search(given)}


def test_ranking_of_nothing_is_zero() -> None:
    assert rank(Text(["a"]), []) == []
    assert rank(Text([]), [Text(["a"])]) == [0.0]
    assert rank(Text(["zzz"]), [Text(["a"]), Text([])]) == [0.0, 0.0]
    assert rank(Text(["a"], {"f": 1.0}), [Text(["a"], {"f": 2.0})]) == [1.0]
    assert cosine({}, {"a": 1.0}) == 0.0
