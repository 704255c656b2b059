"""Checkpoints that stay complete when the process is killed at any moment (docs/rl.md).

    FOLDER/checkpoints/step-000120/state.pt      tensors and plain values
                                   identity.json the run's identity: device, settings, data, model

A checkpoint is written under another name, flushed to the disk and renamed; the last two are kept. Reading one executes
no code (torch's weights_only).
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput
from hipwright.records import content_key

KEEP = 2
DEVICE_PARTS = ("device", "judge")
"""The parts of an identity that name a machine; --allow-device-change lets these differ."""
_NAME = re.compile(r"step-(\d{6,})$")


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in a run's folder, oldest first."""
    found = (_NAME.match(one.name) for one in (folder / "checkpoints").glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def latest_step(folder: Path) -> int | None:
    """The step of the last checkpoint; None for none."""
    return max(steps(folder), default=None)


def save(folder: Path, step: int, identity: Mapping[str, str], state: dict[str, Any]) -> Path:
    """Writes the checkpoint of a step, and deletes all but the last two."""
    import torch

    place = folder / "checkpoints" / f"step-{step:06d}"
    temporary = place.with_name(f".writing-{place.name}")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed process may have left it
    temporary.mkdir(parents=True)
    torch.save(state, temporary / "state.pt")
    (temporary / "identity.json").write_text(json.dumps(dict(identity), indent=1, sort_keys=True), encoding="utf-8")
    for path in (*temporary.iterdir(), temporary):
        _flush(path)
    if place.exists():  # the step was repeated
        shutil.rmtree(place)
    temporary.rename(place)
    _flush(place.parent)
    for old in steps(folder)[:-KEEP]:
        shutil.rmtree(place.with_name(f"step-{old:06d}"))
    return place


def delete(folder: Path) -> None:
    """Deletes the checkpoints of a run's folder."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def load(folder: Path, identity: Mapping[str, str], *, allow_device_change: bool = False) -> dict[str, Any] | None:
    """The last checkpoint's state, with its `identity`; None for none.

    Raises BadInput where its identity differs, except in `DEVICE_PARTS` with allow_device_change.
    """
    import torch

    step = latest_step(folder)
    if step is None:
        return None
    place = folder / "checkpoints" / f"step-{step:06d}"
    try:
        known = json.loads((place / "identity.json").read_text(encoding="utf-8"))
        state: dict[str, Any] = torch.load(place / "state.pt", map_location="cpu", weights_only=True)
    except Exception as error:  # corrupt files raise errors of any type
        hint = f"delete {place} to resume from the previous checkpoint"
        raise BadInput(f"cannot read the checkpoint {place}: {error}", hint=hint) from error
    _check(place, known, identity, allow_device_change)
    return {**state, "identity": known}


def _check(place: Path, known: Mapping[str, str], identity: Mapping[str, str], allow_device_change: bool) -> None:
    for name in sorted(known.keys() | identity.keys()):
        was, now = known.get(name, ""), identity.get(name, "")
        if was == now or (name in DEVICE_PARTS and allow_device_change):
            continue
        if name in DEVICE_PARTS:
            hint = (
                "resume on that device, or give --allow-device-change: timings of different devices are not comparable"
            )
            raise BadInput(f"{place.parent.parent} was trained with {name} {was!r}; this is {now!r}", hint=hint)
        raise BadInput(f"{place.parent.parent} holds a run with other {name}", hint="give the same, or a new folder")


def identity_of(**parts: Any) -> dict[str, str]:
    """The identity of a run: strings as they are, other parts as a hash of their canonical JSON."""
    return {
        name: part if isinstance(part, str) else content_key(json.dumps(part, sort_keys=True, default=repr))
        for name, part in parts.items()
    }


def digest(texts: Iterable[str | bytes]) -> str:
    """A hash of a list of texts."""
    return content_key(*texts)


# ---------------------------------------------------------------- random states


def random_states() -> dict[str, Any]:
    """The states of the random generators of Python, numpy, torch and every CUDA device."""
    import numpy as np
    import torch

    name, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), place, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random(states: Mapping[str, Any]) -> None:
    """Restores `random_states()`; CUDA's only where the number of devices is the same."""
    import numpy as np
    import torch

    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, place, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), place, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    if len(states["cuda"]) == torch.cuda.device_count() > 0:
        torch.cuda.set_rng_state_all(states["cuda"])


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
