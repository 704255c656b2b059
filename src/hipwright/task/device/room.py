"""Several tasks in one device host, for tasks that trust each other (docs/tasks.md). Runs in a sandbox's session.

A GPU process takes seconds to start beside others: its context, and every kernel of torch that it meets for the first
time. A task that moves into a warm one is ready in a tenth of that.
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from hipwright.task.device.inputs import Told
from hipwright.task.device.server import DeviceHost
from hipwright.tensors import Tree


class DeviceRoom:
    """Service of the sandbox; every guest is a DeviceHost with a number."""

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        self._guests: dict[int, DeviceHost] = {}

    def enter(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Open header["init"] as guest header["guest"]."""
        self._guests[header["guest"]] = DeviceHost(header["init"], None)
        return {}, None

    def ask(self, header: dict[str, Any], bundle: Tree) -> Told:
        """header["method"] of a guest with header["header"]."""
        told: Told = getattr(self._guests[header["guest"]], header["method"])(header["header"], bundle)
        return told

    def leave(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Forget a guest, and give its memory back."""
        if self._guests.pop(header["guest"], None) is not None:
            gc.collect()  # a finished expectation is a cycle through its frames
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
        return {}, None
