"""``faultrun doctor --device``: whether devices are well. They are asked here, unlike anything else."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from faultrun.cli.doctor.checks import Check, CheckStatus
from faultrun.platforms.device_health import DeviceHealth, ask, devices_to_ask

_WITHIN_S = 25.0
"""Less than a run gives its ``--health_check``."""

_LOOK = {
    "cpu": "dmesg: the kernel tells of memory and machine checks",
    "gpu": "nvidia-smi -q -d ECC,ROW_REMAPPER; the torch of this Python has to see it",
    "npu": "npu-smi info -t health; the torch and torch_npu of this Python have to see it",
}


def devices_checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """A line for each device. All are asked at once, so all take no longer than one."""
    asked = devices_to_ask(environ)
    with ThreadPoolExecutor(max(1, len(asked))) as askers:
        yield from askers.map(lambda one: health_check(ask(one, environ, _WITHIN_S)), asked)


def health_check(answered: DeviceHealth) -> Check:
    """What a device that was asked to remember and to compute has answered."""
    device = answered.device
    if answered.well:
        return Check("device", CheckStatus.OK, f"{device.name} is well: {answered.said}")
    what = f"{device.name} is not well: {answered.said}"
    return Check("device", CheckStatus.FAIL, what, _LOOK[device.kind])
