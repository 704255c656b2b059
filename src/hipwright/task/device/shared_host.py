"""One process that serves the device hosts of several tasks, which trust each other (docs/tasks.md).

A GPU process takes seconds to start: its context, and every kernel of torch at its first use. A task that opens in a
running process is ready in a tenth of that. Runs in a session of the sandbox.
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from hipwright.task.device.inputs import Told
from hipwright.task.device.server import DeviceHost
from hipwright.tensors import Tree


class SharedDeviceHost:
    """Service of the sandbox: a DeviceHost for each task, by number."""

    def __init__(self, init: dict[str, Any], bundle: Tree) -> None:
        self._tasks: dict[int, DeviceHost] = {}

    def open(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Opens the task header["task"] with header["init"]."""
        self._tasks[header["task"]] = DeviceHost(header["init"], None)
        return {}, None

    def call(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Calls header["method"] of a task with header["header"]."""
        reply: Told = getattr(self._tasks[header["task"]], header["method"])(header["header"], bundle)
        return reply

    def close(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Drops a task and frees its device memory."""
        if self._tasks.pop(header["task"], None) is not None:
            gc.collect()  # a finished expectation refers to itself through its frames
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
        return {}, None
