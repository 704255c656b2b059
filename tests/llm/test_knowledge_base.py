"""Retrieval of knowledge pages: the best page first, for the requested targets only, without output, deterministic."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hipwright.errors import InfrastructureError
from hipwright.llm.knowledge_base import KINDS, pages, read_page, retrieve

CDNA = ("gfx942", "gfx950", "cpu")

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        {init}

    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn(64, {width}{dtype})]


def get_init_inputs():
    return [{width}]
"""


def task(expression: str, init: str = "pass", width: int = 512, dtype: str = "") -> str:
    return TASK.format(expression=expression, init=init, width=width, dtype=dtype)


def names(
    query: str, k: int = 3, targets: tuple[str, ...] = CDNA, kinds: tuple[str, ...] = ("technique", "api")
) -> list[str]:
    return [page.name for page in retrieve(query, targets=targets, k=k, kinds=kinds)]  # type: ignore[arg-type]


WORDS = {
    "row softmax over 32768 columns fp16": "row-softmax",
    "transpose without bank conflicts": "transpose-lds",
    "prefix sum along the last dimension": "scan",
    "look up embedding rows by token index": "gather-embedding",
    "float4 loads and stores, alignment": "vector-loads",
    "one sum over a whole tensor, atomics or a second kernel": "split-reduction",
    "mean over dim 0, the outer dimension": "column-reduction",
    "matrix cores MFMA fp16 gemm": "mfma-tile",
    "port warp shuffle with mask 0xffffffff and __ballot_sync from CUDA": "cuda-habits",
    "which torch operators may the plan call": "library-calls",
    "knob, launch and guard syntax of a program": "program-form",
    "half2 packed arithmetic bf16": "packed-half",
}
TASKS = {
    task("torch.softmax(x, dim=-1)", width=32768, dtype=", dtype=torch.float16"): "row-softmax",
    task("F.log_softmax(x, dim=1)"): "row-softmax",
    task("self.norm(x)", "self.norm = nn.LayerNorm(width)"): "layernorm-rmsnorm",
    task("F.rms_norm(x, (x.shape[-1],))"): "layernorm-rmsnorm",
    task("torch.cumsum(x, dim=1)"): "scan",
    task("self.table(x.long())", "self.table = nn.Embedding(10, width)"): "gather-embedding",
    task("x.transpose(0, 1).contiguous()"): "transpose-lds",
}


@pytest.mark.parametrize("query", WORDS)
def test_the_page_that_a_question_asks_for_is_first(query: str) -> None:
    assert names(query)[0] == WORDS[query]


@pytest.mark.parametrize("query", TASKS, ids=lambda text: text.split("return ")[1].splitlines()[0])
def test_the_page_that_a_task_needs_is_first(query: str) -> None:
    assert names(query)[0] == TASKS[query]


@pytest.mark.parametrize("words", ["torch.matmul(x, x.T)", "F.linear(x, x)", "x @ x.T"])
def test_a_product_finds_the_pages_on_products(words: str) -> None:
    assert {"mfma-tile", "gemm-lds"} <= set(names(task(words)))
    assert "mfma-tile" not in names(task(words), k=50, targets=("gfx1100",))


def test_pages_of_architectures_come_for_asked_targets_only() -> None:
    def arch(*targets: str) -> set[str]:
        return {page.name for page in retrieve("wave32 gfx1100 mi300x h100", targets=targets, k=99, kinds=("arch",))}

    assert arch("gfx942") == {"gfx942"} and arch("gfx1100", "cpu") == {"gfx1100"}
    assert arch("gfx942", "gfx950", "cpu") == {"gfx942", "gfx950"}
    assert arch("cuda") == arch("sm_90") == {"sm_90"}
    assert arch("cpu") == set()


def test_an_architecture_s_page_is_given_even_where_nothing_matches() -> None:
    (page,) = retrieve("zzz", targets=("gfx950",), k=5)
    assert page.name == "gfx950"
    assert retrieve("zzz", targets=("gfx950",), k=5, kinds=("technique", "api")) == []
    assert retrieve("", targets=("cpu",), k=5) == []


def test_rocm_is_any_amd_target_and_cpu_alone_is_every_one() -> None:
    assert "mfma-tile" in names("mfma gemm", targets=("rocm",)) and "mfma-tile" in names("mfma gemm", targets=("cpu",))
    assert "mfma-tile" not in names("mfma gemm", k=50, targets=("cuda",))


def test_kinds_and_k_are_kept_to() -> None:
    for kind in KINDS:
        found = retrieve("softmax reduction gemm program wave", targets=CDNA, k=2, kinds=(kind,))
        assert len(found) == 2 and {page.kind for page in found} == {kind}
    assert retrieve("softmax", targets=CDNA, k=0) == []


SCRIPT = """
import sys
from hipwright.llm.knowledge_base import retrieve
for query in ("row softmax over 32768 columns fp16", "def f(x):\\n    return x.sum() + x.softmax(1)", "gemm"):
    found = retrieve(query, targets=("gfx942",), k=9)
    sys.stderr.write(" ".join(page.name for page in found) + "\\n")
"""


def test_retrieval_prints_nothing_and_does_not_depend_on_the_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        for seed in ("1", "2")
    ]
    assert [run.stdout for run in runs] == ["", ""]
    assert runs[0].stderr == runs[1].stderr and len(runs[0].stderr.splitlines()) == 3


def test_importing_the_library_imports_nothing_heavy() -> None:
    code = (
        "import sys; from hipwright.llm.knowledge_base import pages; pages(); "
        "print({'bm25s', 'torch', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_retrieval_is_quick() -> None:
    retrieve("gemm", targets=CDNA, k=3)
    start = time.process_time()
    for _ in range(10):
        retrieve("row softmax over 32768 columns fp16", targets=CDNA, k=3)
    assert time.process_time() - start < 2.0


FRONT = "---\nname: n\nkind: api\ntitle: T\ntargets: [gfx942]\ntags: [a]\n---\n"


def test_a_page_is_read_into_its_parts() -> None:
    page = read_page("n.md", FRONT + "Words.\n\n```python task\nx = 1\n```\n\n```python program\ny = 2\n```\n")
    assert (page.name, page.kind, page.targets, page.tags) == ("n", "api", ("gfx942",), ("a",))
    assert page.text.startswith("Words.") and (page.tasks, page.programs) == (("x = 1\n",), ("y = 2\n",))


@pytest.mark.parametrize(
    "text",
    [
        "no front matter",
        FRONT.replace("kind: api", "kind: poem"),
        FRONT.replace("title: T\n", ""),
        FRONT.replace("tags: [a]", "tags: ["),
        FRONT + "```python program\ny = 2\n```\n",
        FRONT + "```python task\nx = 1\n```\n",
    ],
)
def test_a_damaged_page_is_named(text: str) -> None:
    with pytest.raises(InfrastructureError, match=r"n\.md"):
        read_page("n.md", text)


def test_the_pages_are_package_data() -> None:
    import hipwright.llm

    folder = Path(hipwright.llm.__file__).parent / "knowledge"
    assert {page.name for page in pages()} == {path.stem for path in folder.glob("*.md")}
