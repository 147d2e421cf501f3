"""A device is asked to remember and to compute, in a process of its own: ``python -m ... KIND NUMBER``.

Ends with 0 and a line that says what was asked, else with 1 and a line that says what went wrong. What hangs
in a driver hangs this process; ``device_health`` waits only so long. ``NUMBER`` counts what is visible.
"""

import sys
from importlib import import_module
from typing import Any

_PATTERNS = (0x00, 0xFF, 0x55, 0xAA)
_HOST_BYTES, _DEVICE_BYTES = 64 << 20, 1 << 30
_HOST_SIDE, _DEVICE_SIDE = 96, 1024

_OF_DRIVERS = (ImportError, RuntimeError, OSError, AttributeError, AssertionError, TypeError, ValueError)
"""What torch and drivers raise, of which ``torch.AcceleratorError`` is a RuntimeError."""


class Unwell(Exception):
    """What the device was asked came out wrong."""


def main(kind: str, number: int) -> int:
    """Ask the device; the exit code."""
    try:
        said = host() if kind == "cpu" else accelerator(kind, number)
    except Unwell as wrong:
        sys.stdout.write(f"{wrong}\n")
        return 1
    except _OF_DRIVERS as error:
        said = (str(error).strip() or "no reason given").splitlines()[0]
        sys.stdout.write(f"{type(error).__name__}: {said}\n")
        return 1
    sys.stdout.write(f"{said}\n")
    return 0


def host() -> str:
    """The processor and its memory, without any framework: the numbers are exact."""
    block = bytearray(_HOST_BYTES)
    for pattern in _PATTERNS:
        block[:] = bytes([pattern]) * _HOST_BYTES
        if block.count(pattern) != _HOST_BYTES:
            raise Unwell(f"{_HOST_BYTES - block.count(pattern)} bytes of memory forgot {pattern:#04x}")
    rows = range(_HOST_SIDE)
    columns = [[row * column % 5 for row in rows] for column in rows]
    product = [[sum(row * inner % 7 * one[inner] for inner in rows) for one in columns] for row in rows]
    check_sums(
        [sum(row) for row in product],
        [sum(row * inner % 7 * sum(one[inner] for one in columns) for inner in rows) for row in rows],
    )
    return f"{_HOST_BYTES >> 20} MiB remembered, a product of {_HOST_SIDE} x {_HOST_SIDE} right"


def accelerator(kind: str, number: int) -> str:
    """A GPU or NPU by torch. Whole numbers so small that every format of a device holds them exactly."""
    torch: Any = import_module("torch")
    if kind == "npu":
        import_module("torch_npu")  # it brings torch.npu
    module = torch.npu if kind == "npu" else torch.cuda
    if number >= module.device_count():
        raise Unwell(f"torch sees {module.device_count()} devices, and number {number} is not among them")
    device = f"{'npu' if kind == 'npu' else 'cuda'}:{number}"
    module.set_device(device)
    size_bytes = min(_DEVICE_BYTES, module.mem_get_info()[0] // 2)
    for pattern in _PATTERNS:
        block = torch.full((size_bytes,), pattern, dtype=torch.uint8, device=device)
        forgotten = size_bytes - int((block == pattern).sum().item())
        del block
        if forgotten:
            raise Unwell(f"{forgotten} bytes of its memory forgot {pattern:#04x}")
    counted = torch.arange(_DEVICE_SIDE * _DEVICE_SIDE).reshape(_DEVICE_SIDE, _DEVICE_SIDE)
    left, right = (counted % 7).float(), (counted % 5).float()
    product = (left.to(device) @ right.to(device)).cpu().double()
    check_sums(product.sum(1).tolist(), (left.double() @ right.double().sum(1)).tolist())
    name = module.get_device_name(number)
    return f"{name}: {size_bytes >> 20} MiB remembered, a product of {_DEVICE_SIDE} x {_DEVICE_SIDE} right"


def check_sums(got: list[float], wanted: list[float]) -> None:
    """Unwell unless each row of a product adds up to what it must."""
    if wrong := sum(one != other for one, other in zip(got, wanted, strict=True)):
        raise Unwell(f"{wrong} of {len(wanted)} rows of a product of whole numbers are wrong")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
