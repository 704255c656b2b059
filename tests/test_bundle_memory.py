"""Bundles of gigabytes pass through a process in chunks: each is gone when it is sent, not at the next collection."""

import gc
import os
import weakref

import numpy as np

from hipwright.tensors import HostTensor, read_bundle, write_bundle


def test_a_written_bundle_is_not_kept() -> None:
    storage = np.arange(1 << 20, dtype=np.uint8)
    gone = weakref.ref(storage)
    fd = os.memfd_create("bundle")
    gc.disable()
    try:
        write_bundle(fd, {"x": [HostTensor("uint8", (1 << 20,), (1,), 0, storage)]})
        del storage
        assert gone() is None
    finally:
        gc.enable()
    assert np.array_equal(read_bundle(fd)["x"][0].storage, np.arange(1 << 20, dtype=np.uint8))
    os.close(fd)
