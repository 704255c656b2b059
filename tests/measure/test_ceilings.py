"""Ceilings are measured once for each device, driver and torch."""

import pytest

from hipwright.errors import DeviceError
from hipwright.measure.ceilings import Ceilings, ceilings_of


class Device:
    def __init__(self, copy: float = 4e12, **info: str) -> None:
        self.info = {"name": "GPU", "uuid": "a", "driver": "1", "torch": "2", **info}
        self.copy = copy
        self.asked = 0

    def measure_ceilings(self):
        self.asked += 1
        return {"copy": self.copy, "read": 4.2e12, "write": 3e12, "flops": {"float32": 5e13}}


def test_remembered_by_device_driver_and_torch(tmp_path):
    first = Device()
    found = ceilings_of(first, tmp_path / "new")
    assert found.bytes_per_s == 4e12 and found.flops == {"float32": 5e13}
    again = Device(copy=1.0)
    assert ceilings_of(again, tmp_path / "new") == found and again.asked == 0
    for change in ({"uuid": "b"}, {"driver": "2"}, {"torch": "3"}, {"name": "other"}):
        other = Device(**change)
        ceilings_of(other, tmp_path / "new")
        assert other.asked == 1


def test_a_damaged_memory_is_measured_again(tmp_path):
    ceilings_of(Device(), tmp_path)
    (path,) = tmp_path.glob("ceilings-*.json")
    path.write_text('{"copy": 1')
    device = Device()
    ceilings_of(device, tmp_path)
    assert device.asked == 1
    assert Ceilings.from_json(path.read_bytes()).copy == 4e12


def test_nonsense_is_an_error_and_is_not_kept(tmp_path):
    with pytest.raises(DeviceError, match="cannot be measured"):
        ceilings_of(Device(copy=0.0), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    assert ceilings_of(Device(), path).copy == 4e12
