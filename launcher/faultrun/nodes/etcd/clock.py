"""The clock of leases: it goes on while the machine sleeps, and it is never set."""

import time


def boot_now() -> float:
    """Seconds since boot, those in suspend included; CLOCK_MONOTONIC would leave them out."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
