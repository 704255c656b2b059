"""Nodes, and the place of a run: one device, never several in one table."""

from __future__ import annotations

import pytest

from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import BadInput
from hipwright.fleet.client import short_word
from hipwright.fleet.nodes import FleetNode, choose_place, device_label, node_offer, nodes_of

MI300, MI355 = "AMD-Instinct-MI300X", "AMD-Instinct-MI355X"


def node(name: str, device: str = "", drained: bool = False, **seats: int) -> FleetNode:
    return FleetNode(name, name, seats, seats, device, drained)


def test_one_device_is_chosen_and_several_must_be() -> None:
    nodes = [node("a", MI300, gfx942=8, cpu=2), node("b", MI300, gfx942=8), node("c", MI355, gfx950=4)]
    with pytest.raises(BadInput, match="never compared"):
        choose_place(nodes, ("rocm",))
    place = choose_place(nodes, ("rocm",), "gfx942")
    assert (place.seats, place.device, place.name, place.gpu) == (16, MI300, MI300, True)
    assert choose_place(nodes, ("rocm", "cpu"), MI355).architecture == "gfx950"
    with pytest.raises(BadInput, match="no cuda seat"):
        choose_place(nodes, ("cuda",))


def test_two_devices_of_one_architecture_are_two_places() -> None:
    nodes = [node("a", "NVIDIA-H100", sm_90=8), node("b", "NVIDIA-H200", sm_90=8)]
    with pytest.raises(BadInput, match="several devices"):
        choose_place(nodes, ("cuda",), "sm_90")
    assert choose_place(nodes, ("cuda",), "NVIDIA-H200").seats == 8
    assert nodes[0].offers("sm_90", "NVIDIA-H200") == 0 and nodes[1].offers("sm_90", "NVIDIA-H200") == 8


def test_processors_are_one_place_and_drained_nodes_none() -> None:
    assert choose_place([node("a", cpu=2), node("b", MI300, cpu=3, gfx942=1)], ("gfx942", "cpu")).seats == 5
    with pytest.raises(BadInput, match="no cpu seat"):
        choose_place([node("a", drained=True, cpu=2)], ("cpu",))
    with pytest.raises(BadInput, match="no target that runs on a GPU"):
        choose_place([node("a", cpu=2)], ("cpu",), "gfx942")


def test_a_node_offers_gpus_of_one_kind() -> None:
    gpus = [GpuInfo(index=n, kind="cuda", name="NVIDIA H100 80GB HBM3", architecture="sm_90") for n in range(2)]
    assert node_offer(gpus, 3) == ({"sm_90": 2, "cpu": 3}, {"hipwright.io/device": "NVIDIA-H100-80GB-HBM3"})
    assert node_offer([], 1) == ({"cpu": 1}, {})
    other = GpuInfo(index=2, kind="cuda", name="NVIDIA A100", architecture="sm_80")
    with pytest.raises(BadInput, match="several kinds"):
        node_offer([*gpus, other], 0)


def test_labels_have_only_what_ray_allows() -> None:
    label = device_label("AMD Instinct MI300X (192 GB), " + "x" * 80)
    assert len(label) <= 63 and label.startswith("AMD-Instinct-MI300X-192-GB-x")


def test_rays_own_resources_are_no_seats() -> None:
    listed = [
        {
            "Alive": True,
            "NodeID": "ab" * 20,
            "NodeManagerHostname": "one",
            "Labels": {},
            "Resources": {
                "CPU": 8.0,
                "GPU": 2.0,
                "memory": 1e9,
                "node:1.2.3.4": 1.0,
                "gfx942": 2.0,
                "accelerator_type:MI300X": 1.0,
                "object_store_memory": 5.0,
            },
        },
        {"Alive": False, "NodeID": "cd" * 20, "NodeManagerHostname": "gone", "Labels": {}, "Resources": {"cpu": 1.0}},
    ]
    (found,) = nodes_of(listed, {"ab" * 20: {"gfx942": 1.0}})
    assert (found.seats, found.free, found.name) == ({"gfx942": 2}, {"gfx942": 1}, "one-ababab")


def test_rays_last_word_is_a_short_line() -> None:
    line = (
        "[2026-11-27 21:11:54,120 E 25016 25122] rpc_client.h:204: Failed to connect to GCS. GCS may have been killed."
    )
    assert short_word(line) == "Failed to connect to GCS"
    assert short_word("ValueError: no such node") == "ValueError: no such node"
