"""Environments with libraries whose pins conflict with ours, kept in ~/.cache/hipwright-tests/NAME-HASH.

A package that is not in the list comes from the environment that runs the tests (such as
torch, which is large); packages of the list have precedence.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hipwright-tests"
REPO = Path(__file__).parents[2]

AIOHTTP = [
    "aiohttp==3.14.5",
    "aiohappyeyeballs==2.7.1",
    "aiosignal==1.4.0",
    "frozenlist==1.8.0",
    "multidict==7.2.1",
    "propcache==0.5.4",
    "yarl==1.25.1",
]

VERIFIERS = [
    "verifiers==0.4.0",
    "openai==2.54.0",
    "mcp==2.0.0",
    "mcp-types==2.0.0",
    "prime-pydantic-config==0.4.3",
    "prime-runs==0.1.4",
    "prime-sandboxes==0.5.1",
    "prime-tunnel==0.1.15",
    "prime-traces==0.0.10",
    "renderers==0.1.12",
    "openai-harmony==0.0.8",
    "loguru==0.7.3",
    "msgpack==1.2.4",
    "pyzmq==27.3.0",
    "tenacity==9.2.1",
    "tomli-w==1.2.0",
    "tomli==2.5.0",
    "httpx==0.28.1",
    "httpcore==1.0.9",
    "distro==1.9.0",
    "connectrpc==0.11.1",
    "pyqwest==0.12.0",
    "protobuf-py==0.1.1",
    "protobuf-py-ext==0.1.1",
    "aiofiles==25.1.0",
    "gepa==0.1.4",
    "math-verify==0.9.0",
    "latex2sympy2-extended==1.11.0",
    "antlr4-python3-runtime==4.13.2",
    *AIOHTTP,
]
VERL = [
    "verl==0.9.1",
    "transformers==5.9.0",
    "tokenizers==0.22.2",
    "huggingface_hub==1.33.0",
    "httpx==0.28.1",
    "httpcore==1.0.9",
    "fastapi==0.165.0",
    "hydra-core==1.3.8",
    "omegaconf==2.3.0",
    "antlr4-python3-runtime==4.9.3",
    "tensordict==0.10.0",
    "ray==2.60.0",
    "codetiming==1.4.0",
    "torchdata==0.11.0",
    "pylatexenc==2.10",
    "msgpack==1.2.4",
    "cachetools==8.0.1",
    "pyvers==0.2.3",
    "cloudpickle==3.1.2",
    "orjson==3.13.0",
    "TransferQueue==0.1.11",
    "pyzmq==27.3.0",
    *AIOHTTP,
]
OPENENV = ["openenv==0.10.0"]


def python(name: str, packages: list[str], *, whole: bool = False) -> Path:
    """The interpreter of an environment with the packages. whole: install all their requirements too."""
    digest = hashlib.sha256("\n".join([sys.version, str(whole), *packages]).encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    found = folder / "bin" / "python"
    if (folder / "ready").exists():
        return found
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(install if whole else [*install, "--no-deps"], check=True, timeout=1500)
    if not whole:
        ours = Path(sysconfig.get_paths()["purelib"])
        (folder / "lib" / ours.parent.name / "site-packages" / "fallback.pth").write_text(f"{ours}\n")
    (folder / "ready").touch()
    return found


def run(interpreter: Path, script: Path, *args: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs a script with that interpreter, with hipwright and the tests of this checkout."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPO / "src"), str(REPO)]), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [str(interpreter), str(script), *map(str, args)],
        cwd=REPO,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
