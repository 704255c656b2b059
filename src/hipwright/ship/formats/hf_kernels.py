"""`hf-kernels`: a source tree for Hugging Face's kernel-builder, edition 5, for ROCm and CUDA.

Facts: huggingface/kernels: the builder's docs (writing-kernels, kernel-requirements), build.toml of edition 5.
"""

from __future__ import annotations

import re
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.ship import hub
from hipwright.ship.hub import native, texts
from hipwright.ship.subject import Files, ShipFormat, ShippedProgram
from hipwright.ship.torch_op import RUNTIME, Generated, checked, generated
from hipwright.targets import OFFLINE

BUILDER_ARCHS = frozenset(
    {"gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201"}
)
"""What the builder compiles for; another name would leave a kernel out without a word."""
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_RESERVED = ("op", "plan", "spec", "gpu", "reference", "layers", "ops", "torch", "warnings", "default")


def _files(subject: ShippedProgram) -> Files:
    kernel = subject.name.replace("_", "-")
    if not _NAME.fullmatch(kernel):
        raise BadInput(f"{kernel!r} is no name of a kernel on the Hub", hint="use --name: small letters, digits, _")
    made = generated(subject)
    values = _values(subject, kernel, made)
    package, name = f"torch-ext/{subject.name}", subject.name
    return {
        "build.toml": texts.BUILD.format(**values),
        "flake.nix": texts.FLAKE.format(**values),
        "CARD.md": texts.CARD.format(**values),
        "example.py": texts.EXAMPLE,
        f"tests/test_{name}.py": checked(texts.TEST.format(**values)),
        "benchmarks/benchmark.py": checked(texts.BENCHMARK.format(**values)),
        f"{package}/__init__.py": checked(texts.INIT.format(**values)),
        f"{package}/layers.py": checked(texts.LAYERS.format(**values)),
        f"{package}/plan.py": made.plan,
        f"{package}/spec.py": made.spec,
        f"{package}/reference.py": subject.source,
        f"{package}/op.py": (RUNTIME / "op.py").read_text(encoding="utf-8"),
        f"{package}/gpu.py": (Path(hub.__file__).parent / "launchers.py").read_text(encoding="utf-8"),
        **_native(subject),
    }


def _native(subject: ShippedProgram) -> dict[str, str]:
    parsed = subject.parsed
    kernels = [parsed.signatures[name] for name in parsed.launched]
    if not kernels:
        raise BadInput("the program has no kernels: a kernel of the Hub would have nothing to build")
    source = native.kernels_text(parsed.hip, kernels, parsed.defines(subject.program.knobs), subject.program.key)
    headers = {f"{subject.name}_cuda/{path}": text for path, text in native.cuda_headers().items()}
    return {
        "torch-ext/torch_binding.cpp": native.binding_text(kernels),
        "torch-ext/torch_binding.h": native.header_text(kernels),
        f"{subject.name}_cuda/kernels.cu": source,
        f"{subject.name}_rocm/kernels.hip": source,
        **headers,
    }


def _values(subject: ShippedProgram, kernel: str, made: Generated) -> dict[str, str]:
    name = subject.name
    sources = [f"{name}_cuda/kernels.cu", *(f"{name}_cuda/{path}" for path in native.cuda_headers())]
    return {
        **made.fields,
        "kernel": kernel,
        "key": subject.program.key,
        "layer": "".join(part.capitalize() for part in name.split("_")),
        "function": f"{name}_forward" if name in (*_RESERVED, *made.fields["arguments"].split(", ")) else name,
        "comma": ", " if made.fields["passed"] else "",
        "cuda": ", ".join(f'"{path}"' for path in sources),
        "archs": ", ".join(f'"{arch.name}"' for arch in OFFLINE.values() if arch.name in BUILDER_ARCHS),
        "backward": "gradients are the program's own." if made.found.saved is not None else "it has no gradients.",
    }


FORMAT = ShipFormat("hf-kernels", "a source tree for Hugging Face's kernel-builder", _files)
