"""A clock to be set."""

from faultrun.supervisor.reactor import RunClock


class Hands(RunClock):
    """A clock whose time is what the test says."""

    at_s = 0.0

    def now(self) -> float:
        return self.at_s
