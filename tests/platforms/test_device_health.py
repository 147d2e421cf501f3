"""A device is well if it remembers and computes in time; a child process asks it."""

import os
from pathlib import Path

import pytest

from faultrun.cli.doctor.checks import CheckStatus
from faultrun.cli.doctor.command import health_check
from faultrun.platforms.device_health import AskedDevice, DeviceHealth, ask, devices_to_ask
from faultrun.platforms.device_probe import Unwell, check_sums

CPU, GPU = AskedDevice(kind="cpu", number=0), AskedDevice(kind="gpu", number=2)
PATIENCE_S = 60.0


def asked_of(tmp_path: Path, *names: str, **environ: str) -> list[AskedDevice]:
    for name in names:
        (tmp_path / name).touch()
    return list(devices_to_ask(environ, tmp_path))


def test_a_processor_that_is_well_says_what_it_did() -> None:
    found = ask(CPU, os.environ, PATIENCE_S)
    assert found.well
    assert "64 MiB remembered" in found.said
    assert health_check(found).status is CheckStatus.OK


def test_no_answer_in_time_is_a_no_and_the_child_is_ended(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import os, signal; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); signal.pause()"
    )
    found = ask(CPU, {**os.environ, "PYTHONPATH": str(tmp_path)}, 0.5)
    assert (found.well, found.said) == (False, "it did not answer within 0.5 s")
    if (tmp_path / "pid").exists():  # a busy machine may not have come so far
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_device_that_torch_does_not_see_or_that_breaks_its_driver_is_not_well(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("class cuda:\n    device_count = staticmethod(lambda: 2)\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = ask(GPU, environ, PATIENCE_S)
    assert (found.well, found.said) == (False, "torch sees 2 devices, and number 2 is not among them")
    (tmp_path / "torch.py").write_text("raise RuntimeError('CUDA error: hardware\\nmore')")
    found = ask(GPU, environ, PATIENCE_S)
    assert (found.well, found.said) == (False, "RuntimeError: CUDA error: hardware")
    (tmp_path / "torch.py").write_text("import os; os.kill(os.getpid(), 9)")
    found = ask(GPU, environ, PATIENCE_S)
    assert (found.well, found.said) == (False, "the process that asked it ended with -9")
    check = health_check(found)
    assert check.status is CheckStatus.FAIL
    assert check.what == f"GPU 2 is not well: {found.said}"
    assert "nvidia-smi" in check.fix


def test_a_sum_that_is_wrong_is_told() -> None:
    check_sums([1, 2, 3], [1, 2, 3])
    with pytest.raises(Unwell, match="1 of 3 rows of a product of whole numbers are wrong"):
        check_sums([1, 2, 3], [1, 2, 4])


def test_the_slot_that_a_run_asks_about_is_asked_and_else_all(tmp_path: Path) -> None:
    assert asked_of(tmp_path, FAULTRUN_SLOT="1") == [CPU]
    assert [one.number for one in asked_of(tmp_path, "nvidia0", "nvidia1")] == [0, 1]
    assert asked_of(tmp_path, FAULTRUN_SLOT="2", DEVICE_ID="7") == [GPU]
    assert len(asked_of(tmp_path, CUDA_VISIBLE_DEVICES="1")) == 1
    npus = asked_of(tmp_path, "davinci4", "davinci5", FAULTRUN_SLOT="0", DEVICE_ID="1")
    assert npus == [AskedDevice(kind="npu", number=1)]
    assert npus[0].name == "NPU 1"
    answer = DeviceHealth(device=npus[0], well=False, said="it forgot")
    assert "npu-smi" in health_check(answer).fix
