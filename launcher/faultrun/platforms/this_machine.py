"""What this machine offers a run: accelerators, processors, names and addresses.

Environment variables come in as a mapping; nothing here reads ``os.environ``.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another text after each start of the machine."""

_DEVICE_FILES = {"gpu": r"nvidia\d+", "npu": r"davinci\d+"}
_RANGE, _CUDA_NAME = r"(\d{1,6})-(\d{1,6})", r"(GPU|MIG)-[\w/-]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """How many devices this process may use, and what says so."""

    count: int
    source: str


def visible_accelerators(environ: Mapping[str, str]) -> Accelerators | None:
    """Devices named by ``ASCEND_VISIBLE_DEVICES``, else ``CUDA_VISIBLE_DEVICES``; None if neither is set.

    Ascend's docker runtime writes ``0,2``, ``0-3`` or ``Ascend910-0``; CUDA writes
    indices or ``GPU-<uuid>`` and stops at the first entry it does not know.
    """
    return _visible(environ, "ASCEND_VISIBLE_DEVICES") or _visible(environ, "CUDA_VISIBLE_DEVICES")


def accelerators_of(kind: str, environ: Mapping[str, str], dev: Path = Path("/dev")) -> Accelerators | None:
    """Devices of ``kind`` (gpu or npu): those made visible, else the device files; None if there is none."""
    variable = {"gpu": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_VISIBLE_DEVICES"}[kind]
    if (found := _visible(environ, variable)) is None:
        files = device_files(dev, kind)
        found = Accelerators(count=len(files), source=f"{len(files)} device files in {dev}")
    return found if found.count else None


def device_files(dev: Path = Path("/dev"), kind: str = "") -> tuple[str, ...]:
    """Names of the accelerators of ``kind`` (gpu or npu; of both if empty) among the device files, sorted."""
    pattern = _DEVICE_FILES.get(kind) or "|".join(_DEVICE_FILES.values())
    try:
        return tuple(sorted(path.name for path in dev.iterdir() if re.fullmatch(pattern, path.name)))
    except OSError:
        return ()


def physical_devices(environ: Mapping[str, str], count: int) -> tuple[int, ...]:
    """The device number behind each of ``count`` local ranks.

    The CANN runtime numbers what ``ASCEND_RT_VISIBLE_DEVICES`` lists, in
    ascending order, as msrun does; without it device i belongs to rank i.
    """
    value = environ.get("ASCEND_RT_VISIBLE_DEVICES", "")
    listed = sorted(int(part) for part in value.split(",") if part.strip().isdigit())
    return tuple(listed[:count]) if len(listed) >= count else tuple(range(count))


def processor_count() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def hostname() -> str:
    """This machine's or pod's name."""
    return socket.gethostname()


def is_address(text: str) -> bool:
    """Whether ``text`` is an IPv4 or IPv6 address and not a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except OSError:
            continue
        return True
    return False


def owns_address(ip: str) -> bool:
    """Whether ``ip``, a literal address, belongs to this machine."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((ip, 0))
    except OSError:
        return False
    return True


def every_address() -> str:
    """What to listen at for other hosts: both families, or IPv4 where there is no IPv6."""
    return "::" if owns_address("::") else "0.0.0.0"


def address_of(host: str) -> str:
    """An address of ``host``, IPv4 if it has one; OSError with the resolver's reason if it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # the name breaks DNS's rules, and the resolver was never asked
        raise OSError(0, "no host can have this name") from error
    return str(min(found, key=lambda entry: entry[0] is not socket.AF_INET)[4][0])


def address_towards(host: str) -> str:
    """The address this machine shows to ``host`` (no packet is sent); 127.0.0.1 when there is no route."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _visible(environ: Mapping[str, str], variable: str) -> Accelerators | None:
    if (value := environ.get(variable)) is None:
        return None
    count = _cuda(value) if variable.startswith("CUDA") else _ascend(value)
    return Accelerators(count=count, source=f"{variable}={value}")


def _ascend(value: str) -> int:
    devices: set[int] = set()
    for part in value.split(","):
        span = re.fullmatch(_RANGE, part.strip())
        single = re.fullmatch(r"(?:Ascend\w*-)?(\d{1,6})", part.strip())
        if span:
            devices.update(range(int(span[1]), int(span[2]) + 1))
        elif single:
            devices.add(int(single[1]))
    return len(devices)


def _cuda(value: str) -> int:
    devices: set[str] = set()
    for part in (text.strip() for text in value.split(",")):
        if not part.isdigit() and not re.fullmatch(_CUDA_NAME, part):
            break
        devices.add(part)
    return len(devices)
