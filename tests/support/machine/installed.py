"""Whether a package is installed, without importing it: frameworks take seconds and stay in the process."""

from importlib.util import find_spec

import pytest


def need(package: str) -> None:
    """Skip the test, or the whole file that asks at its top, where ``package`` is not installed."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
