"""Generated kernels: a fixed sample has the same bits on both targets; what differs is found, shrunk and kept."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.simulated import fuzz, kernel_judge
from benchmarks.simulated.graph_judge import judged
from benchmarks.simulated.kernel_judge import KernelJudge
from benchmarks.simulated.kernel_text import HEAD, GeneratedKernel, generated
from hipwright import config
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import build as simulated

SAMPLE = 12


@pytest.mark.slow
def test_a_sample_of_graphs_ends_as_known(judge: KernelJudge) -> None:
    """Those of one seed: equal, or different by rounding alone."""
    verdicts = list(judged("reductions", 0, 2, judge.target, judge.cache, judge.builds))
    assert len(verdicts) == 2 and {v.status for v in verdicts} <= set(fuzz.KNOWN), verdicts
    assert any(v.status == "equal" for v in verdicts)


@pytest.fixture
def judge() -> KernelJudge:
    cache = BuildCache(config.cache_dir())
    return KernelJudge("gfx942@sim", cache, cache)


def test_a_fixed_sample_has_equal_bits(judge: KernelJudge) -> None:
    verdicts = judge.judged([generated(f"sample/{i}") for i in range(SAMPLE)])
    assert [v.status for v in verdicts] == ["equal"] * SAMPLE, [v.message for v in verdicts]


def test_a_seed_has_one_kernel() -> None:
    texts = [generated(f"sample/{i}").text() for i in range(40)]
    assert texts == [generated(f"sample/{i}").text() for i in range(40)] and len(set(texts)) == 40
    text = "".join(texts)
    for wanted in ("for (", "if (", "__shfl_xor", "atomicMax", "__syncthreads", "__ballot", "sqrtf", "multiply(", "t["):
        assert wanted in text, wanted


def test_a_difference_is_shrunk_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator gets other machine code: XOR is OR."""
    plain = simulated.from_assembly

    def wrong(text: str, *rest: object) -> object:
        return plain(text.replace("v_xor_b32", "v_or_b32"), *rest)  # type: ignore[arg-type]

    body = ("f1 = f0 * 2.0f;", ("if ((i2 & 1u) != 0u)", ("f2 = f1;", "i3 = i0 ^ i1;")), "h1 = add(h0, h0);")
    monkeypatch.setattr(kernel_judge.simulated, "from_assembly", wrong)
    monkeypatch.setattr(fuzz, "generated", lambda seed: GeneratedKernel(f"k{seed.rsplit('/', 1)[-1]}", body, 64, 1))
    monkeypatch.setattr(fuzz, "BATCH", 1)
    options = argparse.Namespace(target="gfx942@sim", count=1, seed=3, out=tmp_path / "out", graphs=False, json=True)
    assert fuzz.run(options) == 1
    row = json.loads((tmp_path / "out/gfx942@sim-3.jsonl").read_text())
    assert row["others"][0]["status"] == "differs"
    kept = (tmp_path / "out" / row["others"][0]["file"]).read_text()
    assert kept.startswith("// differs: ") and HEAD in kept
    assert "f1 = f0" not in kept and "add(h0" not in kept


def test_a_run_goes_on_where_the_last_one_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "gfx942@sim-0.jsonl"
    other = {"kernel": "k1", "status": "zero's sign", "message": "", "file": ""}
    record.write_text(json.dumps({"first": 0, "kernels": 50, "others": [other], "seconds": 2.0}) + "\n")
    judged: list[int] = []

    def one(judge: KernelJudge, seed: int, first: int, folder: Path, kept: set[str]) -> dict[str, object]:
        judged.append(first)
        assert kept == {"zero's sign"}
        return {"first": first, "kernels": 50, "others": [], "seconds": 1.0}

    monkeypatch.setattr(fuzz, "_batch", one)
    assert (
        fuzz.run(argparse.Namespace(target="gfx942@sim", count=150, seed=0, out=tmp_path, graphs=False, json=False))
        == 0
    )
    assert judged == [50, 100]
    assert "149 of 150 kernels with the cpu target's bits; 1 zero's sign; 4 s" in capsys.readouterr().out
