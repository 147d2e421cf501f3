"""How many examples property tests draw, and which; the same for every folder of tests."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("EXAMPLES") or 0)
"""``make soak-properties``: every property test and nothing else, with this many examples each."""
ONE_IN = int(os.environ.get("EXAMPLES_ONE_IN") or 1)
"""``make check``: of the examples that a test asks for, one in as many as this."""
PROFILE = "long" if EXAMPLES else "ci" if os.environ.get("CI") else "desk"

# A red build must mean that the change is wrong, and not that the machine has other work.
settings.register_profile("desk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI draws the same examples each time, a desk draws new ones.
settings.register_profile(
    "ci", settings.get_profile("desk"), derandomize=True, print_blob=True, database=None
)
settings.register_profile("long", settings.get_profile("desk"), max_examples=EXAMPLES or 100, print_blob=True)
settings.load_profile(PROFILE)
