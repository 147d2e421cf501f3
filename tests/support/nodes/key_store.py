"""The run's keys as etcd keeps them: revisions, leases, guarded transactions. In memory, without time."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from faultrun.errors import assert_never
from faultrun.model.plan import Plan
from faultrun.nodes.values.membership import (
    ALARMS,
    COORDINATOR_KEY,
    NODES,
    PLAN_KEY,
    CommonKeys,
    NodeKeys,
    Stated,
    part_name,
)
from faultrun.nodes.values.roster import Alarm, Leadership, PlanHeader, Roster, Statement
from faultrun.nodes.values.transaction import (
    Absent,
    Compare,
    CreatedAt,
    NothingNewer,
    Put,
    StoredValue,
    Transaction,
    Unchanged,
)


@dataclass(frozen=True, kw_only=True)
class Kept:
    value: StoredValue
    created: int
    changed: int
    lease: int


class KeyStore:
    """One store for all nodes of a run."""

    def __init__(self) -> None:
        self.revision = 1
        self.kept: dict[str, Kept] = {}
        self.leases = 0

    def grant(self) -> int:
        self.leases += 1
        return self.leases

    def drop(self, lease: int) -> None:
        """The lease has ended, and all that lived by it."""
        self._remove(lambda kept: kept.lease == lease)

    def commit(self, transaction: Transaction, lease: int) -> bool:
        if not all(self.holds(compare) for compare in transaction.compares):
            return False
        self.revision += 1
        for operation in transaction.then:
            if isinstance(operation, Put):
                before = self.kept.get(operation.key)
                self.kept[operation.key] = Kept(
                    value=operation.value,
                    created=before.created if before else self.revision,
                    changed=self.revision,
                    lease=lease if operation.leased else 0,
                )
            else:
                self.kept.pop(operation.key, None)
        return True

    def holds(self, compare: Compare) -> bool:
        match compare:
            case Absent(key=key):
                return key not in self.kept
            case Unchanged(key=key, changed=changed):
                return key in self.kept and self.kept[key].changed == changed
            case CreatedAt(key=key, created=created):
                return key in self.kept and self.kept[key].created == created
            case NothingNewer(folder=folder, revision=revision):
                return all(
                    one.changed <= revision for key, one in self.kept.items() if key.startswith(folder)
                )
            case _:
                assert_never(compare)

    def common(self) -> CommonKeys:
        keys = CommonKeys(revision=self.revision)
        plan, coordinator = self.kept.get(PLAN_KEY), self.kept.get(COORDINATOR_KEY)
        if plan is not None and isinstance(plan.value, PlanHeader):
            keys = replace(keys, header=plan.value, header_changed=plan.changed)
        if coordinator is not None and isinstance(coordinator.value, Leadership):
            keys = replace(
                keys,
                coordinator=coordinator.value,
                token=coordinator.created,
                coordinator_changed=coordinator.changed,
            )
        alarms = (one.value for key, one in self.kept.items() if key.startswith(ALARMS))
        return replace(keys, alarms=tuple(alarm for alarm in alarms if isinstance(alarm, Alarm)))

    def nodes(self) -> NodeKeys:
        stated = tuple(self.stated(key) for key in self.kept if key.startswith(NODES))
        return NodeKeys(revision=self.revision, stated=tuple(one for one in stated if one is not None))

    def stated(self, key: str) -> Stated | None:
        kept = self.kept.get(key)
        if kept is None or not isinstance(kept.value, Statement):
            return None
        return Stated(statement=kept.value, created=kept.created, changed=kept.changed, lease=kept.lease)

    def parts(self) -> dict[str, Roster | Plan]:
        found = self.kept.items()
        return {part_name(key): one.value for key, one in found if isinstance(one.value, Roster | Plan)}

    def _remove(self, ended: Callable[[Kept], bool]) -> None:
        self.kept = {key: one for key, one in self.kept.items() if not ended(one)}
        self.revision += 1
