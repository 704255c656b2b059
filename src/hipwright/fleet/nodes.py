"""The nodes of a fleet as Ray lists them, and what `fleet up` writes on them: architectures, devices, seats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import BadInput
from hipwright.targets import CPU, TARGETS

NAME_LABEL, DEVICE_LABEL = "hipwright.io/name", "hipwright.io/device"
_OWN = re.compile(r"CPU|GPU|memory|object_store_memory|node:.*|accelerator_type:.*")


@dataclass(frozen=True)
class FleetNode:
    """One node. seats: how many of each architecture; free: of these, in no run; device: its GPUs' name as a label."""

    id: str
    name: str
    seats: dict[str, int]
    free: dict[str, int]
    device: str = ""
    drained: bool = False

    def offers(self, architecture: str, device: str = "") -> int:
        """Its seats of an architecture, and of a device where one is named."""
        return self.seats.get(architecture, 0) if device in ("", self.device) or architecture == CPU.name else 0


def nodes_of(listed: Sequence[Mapping[str, Any]], free: Mapping[str, Mapping[str, float]]) -> list[FleetNode]:
    """The living nodes of `ray.nodes()`. free: by node id, the resources that no run holds."""
    found = []
    for one in listed:
        if not one["Alive"]:
            continue
        labels, node = one.get("Labels") or {}, str(one["NodeID"])
        seats = _seats(one["Resources"])
        left = _seats(free.get(node, {}))
        name = labels.get(NAME_LABEL) or f"{one['NodeManagerHostname']}-{node[:6]}"
        found.append(
            FleetNode(node, name, seats, {key: left.get(key, 0) for key in seats}, labels.get(DEVICE_LABEL, ""))
        )
    return sorted(found, key=lambda node: node.name)


def device_label(name: str) -> str:
    """A GPU's name as a label: letters, digits, dashes and dots, at most 63."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:63].strip("-.")


def node_offer(gpus: Sequence[GpuInfo], cpu_seats: int) -> tuple[dict[str, int], dict[str, str]]:
    """The resources and labels of a node with these GPUs. Raises BadInput where they are not alike."""
    kinds = sorted({gpu.name for gpu in gpus})
    if len(kinds) > 1:
        raise BadInput(
            f"this node has GPUs of several kinds: {', '.join(kinds)}",
            hint="start it with those of one kind, by CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES",
        )
    resources = {gpus[0].architecture: len(gpus)} if gpus else {}
    labels = {DEVICE_LABEL: device_label(gpus[0].name)} if gpus else {}
    return resources | ({CPU.name: cpu_seats} if cpu_seats else {}), labels


@dataclass(frozen=True)
class FleetPlace:
    """Where a run's orders are evaluated: seats of one architecture, and of one device of it."""

    architecture: str
    device: str
    seats: int
    gpu: bool

    @property
    def name(self) -> str:
        """What a row's key and a page call it; "" for processors, whose times are not compared."""
        return (self.device or self.architecture) if self.gpu else ""


def choose_place(nodes: Sequence[FleetNode], targets: Sequence[str], wish: str = "") -> FleetPlace:
    """The place of a run of these targets. wish: an architecture or a device's label.

    Raises BadInput where the fleet has none, or devices of several kinds whose times must not stand in one table.
    """
    kind = next((target for target in targets if TARGETS.is_gpu(target)), None)
    if kind is None:
        return _cpu_place(nodes, wish)
    start = "gfx" if TARGETS.gpu(kind).is_amd else "sm_"
    places: dict[tuple[str, str], int] = {}
    for node in nodes:
        for architecture, count in node.seats.items():
            if architecture.startswith(start) and not node.drained:
                key = (architecture, node.device)
                places[key] = places.get(key, 0) + count
    chosen = {key: count for key, count in places.items() if wish in ("", *key)}
    if not chosen:
        known = ", ".join(f"{device or arch} ({arch})" for arch, device in sorted(places)) or "none"
        raise BadInput(f"the fleet has no {wish or kind} seat (known: {known})", hint="see `hipwright fleet status`")
    if len(chosen) > 1:
        known = ", ".join(f"{device or arch} ({arch})" for arch, device in sorted(chosen))
        raise BadInput(
            f"the fleet has several devices for {kind}, and times of different devices are never compared: {known}",
            hint="choose one with --place",
        )
    ((architecture, device), count) = next(iter(chosen.items()))
    return FleetPlace(architecture, device, count, gpu=True)


def _cpu_place(nodes: Sequence[FleetNode], wish: str) -> FleetPlace:
    if wish not in ("", CPU.name):
        raise BadInput(
            f"--place {wish}: no target that runs on a GPU is chosen", hint=TARGETS.gpu_choices("--target {}")
        )
    count = sum(node.seats.get(CPU.name, 0) for node in nodes if not node.drained)
    if not count:
        raise BadInput("the fleet has no cpu seat", hint="`hipwright fleet up --cpu-seats N` gives a node some")
    return FleetPlace(CPU.name, "", count, gpu=False)


def _seats(resources: Mapping[str, float]) -> dict[str, int]:
    return {name: int(count) for name, count in resources.items() if not _OWN.fullmatch(name) and count >= 0}
