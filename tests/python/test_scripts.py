"""The scripts behind `make`, without the machine that they look at."""

import subprocess

import pytest
from cluster import ROOT

NVIDIA, AMD = "0x10de", "0x1002"
DISPLAY, THREE_D, AUDIO = "0x030000", "0x030200", "0x040300"


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ([], False),
        ([(NVIDIA, DISPLAY)], True),
        ([(AMD, DISPLAY), (NVIDIA, THREE_D)], True),
        ([(AMD, DISPLAY), (AMD, THREE_D)], False),
        ([(NVIDIA, AUDIO)], False),
    ],
)
def test_only_gpus_that_can_be_recorded_count(tmp_path, devices, found):
    for number, (vendor, kind) in enumerate(devices):
        device = tmp_path / f"0000:0{number}:00.0"
        device.mkdir()
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    code = subprocess.run([ROOT / "scripts/has-gpu.sh", tmp_path]).returncode
    assert code == (0 if found else 1)
