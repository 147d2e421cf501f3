"""Whether a device of this machine is well: asked by a child process that has only so much time.

``faultrun doctor --device`` calls this, and so does a run that asks before it uses a slot again
(``--health_check='faultrun doctor --device'``): it then gets ``FAULTRUN_SLOT`` and ``DEVICE_ID``.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from faultrun.files import readable
from faultrun.platforms.this_machine import device_files, visible_accelerators

SLOT_VARIABLE = "FAULTRUN_SLOT"
_PROBE = "faultrun.platforms.device_probe"
_GIVEN_UP_S = 1.0
_MOST_BYTES = 4096
_VISIBLE = {"gpu": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDevice:
    """What to ask: the ``number``-th visible device of ``kind`` (gpu, npu or cpu)."""

    kind: str
    number: int

    @property
    def name(self) -> str:
        """The device's name for people, such as ``NPU 3`` or ``the processor``."""
        return "the processor" if self.kind == "cpu" else f"{self.kind.upper()} {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """What came back within the time that it had: ``said`` is one line."""

    device: AskedDevice
    well: bool
    said: str


def devices_to_ask(environ: Mapping[str, str], dev: Path = Path("/dev")) -> tuple[AskedDevice, ...]:
    """The device of ``FAULTRUN_SLOT``, else all of this machine's; a machine without any is its processor."""
    kind = next((one for one in ("npu", "gpu") if device_files(dev, one)), "cpu")
    slot = environ.get(SLOT_VARIABLE, "")
    if kind == "cpu":
        return (AskedDevice(kind=kind, number=0),)
    if slot.isdecimal():
        told = environ.get("DEVICE_ID", "") if kind == "npu" else ""
        return (AskedDevice(kind=kind, number=int(told if told.isdecimal() else slot)),)
    listed, known = environ.get(_VISIBLE[kind], ""), visible_accelerators(environ)
    if listed:
        count = len(listed.split(","))
    else:
        count = len(device_files(dev, kind)) if known is None else known.count
    return tuple(AskedDevice(kind=kind, number=number) for number in range(count))


def ask(device: AskedDevice, environ: Mapping[str, str], within_s: float) -> DeviceHealth:
    """Ask ``device``, and wait ``within_s`` at most. A child that a driver holds is left behind, killed."""
    told, tell = os.pipe()
    try:
        command, quiet = [sys.executable, "-m", _PROBE, device.kind, str(device.number)], subprocess.DEVNULL
        child = subprocess.Popen(
            command, stdin=quiet, stdout=tell, stderr=quiet, env=dict(environ), start_new_session=True
        )
    except OSError as error:
        os.close(told)
        return DeviceHealth(device=device, well=False, said=f"no process could be started to ask it: {error}")
    finally:
        os.close(tell)
    until_s = time.monotonic() + within_s
    with os.fdopen(told, "rb") as answers:
        ready = readable(within_s, told)
        said = os.read(answers.fileno(), _MOST_BYTES).decode(errors="replace").strip() if ready else ""
    if (code := _ends(child, until_s - time.monotonic())) is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        held = "; a driver holds it" if _ends(child, _GIVEN_UP_S) is None else ""
        said = f"it did not answer within {within_s:g} s{held}"
    first = next(iter(said.splitlines()), f"the process that asked it ended with {code}")
    return DeviceHealth(device=device, well=code == 0 and bool(said), said=first)


def _ends(child: "subprocess.Popen[bytes]", within_s: float) -> int | None:
    """Its exit code; None: it lives on."""
    with suppress(subprocess.TimeoutExpired):
        return child.wait(max(0.0, within_s))
    return None
