"""The device host's zygote: warmed up without a device, so that it can be forked."""

import subprocess
import sys

SPY = """
import torch, threading
def touched(*a, **k): raise AssertionError("a device is touched")
for name in ("_lazy_init", "init", "device_count", "is_available", "get_device_properties", "current_device"):
    setattr(torch.cuda, name, touched)
import hipwright.task.device_warm, sys
before = set(sys.modules)
from hipwright.task.double import float64
with float64():
    torch.softmax(torch.ones(2, 2), 1)
late = [name for name in set(sys.modules) - before]
assert not late, late[:5]
assert threading.active_count() == 1, threading.enumerate()
"""


def test_the_warm_up_imports_what_is_late_and_touches_no_device() -> None:
    done = subprocess.run([sys.executable, "-c", SPY], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
