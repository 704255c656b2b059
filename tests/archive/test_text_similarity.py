"""BM25's package must not start JAX, which is installed beside it on many machines with a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
{before}
from hipwright.archive.text_similarity import Text, rank

found = rank(Text(["softmax", "rows"]), [Text(["softmax", "rows", "rows"]), Text(["conv"])])
assert found[0] > found[1] == 0.0, found
assert ("jax" in sys.modules) == {loaded}
import jax.lax

assert jax.lax.top_k is not None
"""


@pytest.mark.parametrize(("before", "started"), [("", "imported\n"), ("import jax.lax", "imported\n")])
def test_jax_is_not_started_and_stays_as_it_was(before: str, started: str, tmp_path: Path) -> None:
    jax = tmp_path / "jax"
    jax.mkdir()
    says = f"open({str(tmp_path / 'said')!r}, 'a').write"
    (jax / "__init__.py").write_text(f"{says}('imported\\n')\n")
    (jax / "lax.py").write_text(f"def top_k(*_):\n    {says}('started\\n')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    script = SCRIPT.format(before=before, loaded=bool(before))
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, check=True)
    assert (tmp_path / "said").read_text() == started
