"""When a member process may try a thing again: soon after a failure, and once a write could be seen."""

from collections.abc import Iterable

from faultrun.errors import assert_never
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.gateway import AnswerLost
from faultrun.nodes.etcd.store import WriteOutcome
from faultrun.nodes.etcd.transactions import Committed, GuardFailed

_SEEN_WITHIN_S, _AGAIN_S, _SOON_S = 0.5, 0.2, 0.02


class Retries:
    """By the names of tasks. Of the loop's thread; ``moments`` are when it has to look again by itself."""

    def __init__(self) -> None:
        self._not_before_s: dict[str, float] = {}
        self._to_be_seen: dict[str, int] = {}

    def is_due(self, name: str, seen_revision: int) -> bool:
        """Whether to try it now; ``seen_revision`` is the newest that a watch has shown."""
        if (revision := self._to_be_seen.get(name)) is not None and seen_revision >= revision:
            del self._to_be_seen[name], self._not_before_s[name]
        return self._not_before_s.get(name, 0.0) <= boot_now()

    def failed(self, name: str) -> None:
        """Note that ``name`` failed: it may be tried again in a moment."""
        self._not_before_s[name] = boot_now() + _AGAIN_S

    def written(self, name: str, outcome: WriteOutcome, seen_revision: int) -> bool:
        """Note a write: try again when the watches show it; soon, if they will show why it was not done.

        True while it is not shown yet: then there is nothing new to judge.
        """
        match outcome:
            case Committed(revision=revision):
                self._not_before_s[name] = boot_now() + _SEEN_WITHIN_S
                self._to_be_seen[name] = revision
            case GuardFailed():
                self._not_before_s[name] = boot_now() + _SOON_S
            case AnswerLost():
                self.failed(name)
            case _:
                assert_never(outcome)
        return isinstance(outcome, Committed) and seen_revision < outcome.revision

    def moments(self) -> Iterable[float]:
        """When something may be tried again."""
        return self._not_before_s.values()
