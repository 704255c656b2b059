"""An example of each command, and which options its first help shows.

The examples run in this order in a folder with `examples` in it (tests/cli/shell/test_every_command.py): each finds
what those before it wrote.
"""

from __future__ import annotations

EXAMPLES = {
    "doctor": "hipwright doctor",
    "config": "hipwright config",
    "contact": "hipwright contact --suite examples/suite --out contact",
    "optimize": "hipwright optimize examples/bias_gelu.py --budget 4 --out out",
    "resume": "hipwright resume latest",
    "model": "hipwright model examples/models/encoder.py --only-profile",
    "eval": "hipwright eval examples/bias_gelu.py out/program.py",
    "score": "hipwright score examples/bias_gelu.py out/program.py",
    "profile": "hipwright profile examples/bias_gelu.py out/program.py --target gfx942@sim",
    "backward": "hipwright backward examples/bias_gelu.py --out gradients",
    "combine": "hipwright combine examples/bias_gelu.py out/program.py library --when '0: x.shape[0] > 1' "
    "--out both.py",
    "export": "hipwright export latest --format torch-op --out package",
    "runs": "hipwright runs",
    "runs faults": "hipwright runs faults",
    "show": "hipwright show latest",
    "compare": "hipwright compare latest latest",
    "archive copy": "hipwright archive copy .hipwright backup",
    "archive check": "hipwright archive check backup",
    "archive migrate": "hipwright archive migrate backup",
    "view": "hipwright view --port 0 --max-minutes 0.1",
    "bench": "hipwright bench examples/suite --budget 1 --out bench",
    "ablate": "hipwright ablate examples/bias_gelu.py --budget 2 --seeds 1 --fill 1",
    "audit": "hipwright audit --only 'cache_*'",
    "fleet up": "hipwright fleet up",
    "fleet status": "hipwright fleet status --address 127.0.0.1:6379",
    "fleet drain": "hipwright fleet drain NODE --address 127.0.0.1:6379",
    "synth": "hipwright synth --count 3 --out new",
    "dataset build": "hipwright dataset build new --variants 1 --out pairs",
    "dataset check": "hipwright dataset check pairs --sample 2",
    "dataset rejudge": "hipwright dataset rejudge pairs --out again",
    "dataset overlap": "hipwright dataset overlap pairs --against examples/suite",
    "dataset stats": "hipwright dataset stats pairs",
    "dataset export": "hipwright dataset export pairs --format sft --out rows",
    "train sft": "hipwright train sft --recipe qwen2.5-coder-7b-lora-1gpu --data pairs --out sft --dry-run",
    "train dpo": "hipwright train dpo --recipe qwen2.5-coder-7b-lora-1gpu --data pairs --out dpo --dry-run",
    "train rl": "hipwright train rl --recipe qwen2.5-coder-7b-lora-1gpu --data pairs --out rl --dry-run",
    "train rft": "hipwright train rft --recipe qwen2.5-coder-7b-lora-1gpu --data pairs --out rft --dry-run",
    "train mini": "hipwright train mini --out mini --target cpu --minutes 1",
    "train report": "hipwright train report mini",
    "train serve": "hipwright train serve --data pairs --port 8417",
    "serve": "hipwright serve --data pairs --port 8417",
    "mcp": "hipwright mcp --print-skill",
}
"""By command: a line that works as it stands, after those above it."""

COMMON = {
    "optimize": ("target", "budget", "seed", "out", "start", "workers", "json"),
    "model": ("target", "budget", "regions", "out", "only_profile", "json"),
    "bench": ("candidates", "target", "out", "resume", "budget", "json"),
    "resume": ("out", "max_minutes", "workers", "fleet", "unsafe", "json"),
    "ablate": ("arms", "budget", "seeds", "out", "json"),
    "audit": ("target", "gate", "only", "mutants", "out", "json"),
    "synth": ("out", "count", "mode", "resume", "json"),
    "dataset build": ("out", "count", "budget", "target", "resume", "json"),
    "train sft": ("recipe", "data", "out", "model", "set", "resume", "dry_run", "json"),
    "train dpo": ("recipe", "data", "out", "model", "set", "resume", "dry_run", "json"),
    "train rl": ("recipe", "data", "out", "model", "set", "resume", "dry_run", "json"),
    "train rft": ("recipe", "data", "out", "model", "set", "resume", "dry_run", "json"),
    "train serve": ("data", "host", "port", "target", "reward", "gpu", "fleet"),
    "serve": ("data", "host", "port", "target", "reward", "gpu", "fleet"),
}
"""The options of the first help, of commands that have too many for one screen; --help-all shows the rest."""
