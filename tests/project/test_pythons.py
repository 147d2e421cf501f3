"""The other Pythons that faultrun supports, where this machine has them; ``make pythons`` runs more."""

import sys

import pytest

from pythons import QUICK, VERSIONS, environment, interpreter, outcome_of

OTHERS = [version for version in VERSIONS if version != f"{sys.version_info[0]}.{sys.version_info[1]}"]


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_a_rank_is_killed_and_started_again_with_every_supported_python(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"python {version} is not on this machine")
    code, output = environment(version, python)
    if code != 0:
        pytest.skip(f"python {version} cannot have our requirements here: {output.strip()[-300:]}")
    code, output = outcome_of(version, QUICK)
    assert code == 0, output
