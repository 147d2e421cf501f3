"""Whether a package is installed, without importing it: frameworks take seconds and stay in the process."""

import ctypes
from importlib.util import find_spec

import pytest


def need(package: str) -> None:
    """Skip the test, or the whole file that asks at its top, where ``package`` is not installed."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)


def has_landlock() -> bool:
    """Whether this kernel tells a version of landlock(7)."""
    create_ruleset, of_version = 444, 1
    told: int = ctypes.CDLL(None).syscall(*map(ctypes.c_long, (create_ruleset, 0, 0, of_version)))
    return told > 0
