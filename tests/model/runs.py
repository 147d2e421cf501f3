"""What is explored, and which mutants must be found: in CI what takes seconds, ``make check-model`` all."""

from typing import NamedTuple

from model.cluster import ALL_FAULTS, Setting

BRIEF = ALL_FAULTS - {"freeze"}
"""A frozen node may go on at any moment of what the others do: most states come of that."""


LOST = frozenset(["trains again", "another coordinator", "an heir leads", "looked again"])
"""What the loss of a node leads to."""


class Mutant(NamedTuple):
    """Guards taken away together, and where the checker finds that."""

    guards: str
    where: Setting
    law: str  # how the law that it breaks begins; empty: some states lead nowhere any more


def _setting(
    members: int, spares: int, faults: int, kinds: str, *, saves: bool = False, fine: bool = False
) -> Setting:
    return Setting(members, spares, faults, frozenset(kinds.split()), saves=saves, fine=fine)


_OF_A_LOST_NODE = _setting(2, 1, 1, "cut")._replace(ends=True)
"""A node that is cut off as the ranks end: counted as lost, it says that it has finished."""

_STAYS = _setting(2, 1, 1, "host")._replace(stays=True)
"""A host is lost, and the rank of the other stays beside that of a spare."""

FORGETS = _setting(2, 0, 1, "hosts", saves=True)._replace(forgets=True)
"""All hosts die at once, and come back without their log_dirs: who is there then saw no save."""

TORN = _setting(2, 0, 1, "rank", saves=True)._replace(torn=True)
"""A rank falls; who has none left may look while the other node saves."""

STOPPED = _setting(2, 1, 1, "stop", saves=True)
"""A node is told to stop, may save longer than the other, and looks no more: a spare has its place."""

IN_CI = {
    "2+0, one fault of any kind": Setting(2, 0, 1),
    "2+1, a host": _setting(2, 1, 1, "host"),
    "2+0, before the first plan, no fault": Setting(2, 0, 0, cold=True),
    "2+0, ranks end, etcd away": _setting(2, 0, 1, "away")._replace(ends=True),
    "2+0, answers one by one, etcd away": _setting(2, 0, 1, "away")._replace(rounds=True),
    "2+0, one is enough, a host": _setting(2, 0, 1, "host")._replace(least=1),
    "2+0, nothing to prepare, a rank or a host": _setting(2, 0, 1, "rank host")._replace(open=True),
    "2+0, half a save is seen, a rank": TORN,
    "2+0, one is told to stop": STOPPED._replace(spares=0),
}

REACHES = {
    "2+0, one fault of any kind": {*LOST, "held", "fenced"},
    "2+1, a host": {*LOST, "spare used"},
    "2+0, before the first plan, no fault": {"trains"},
    "2+0, ranks end, etcd away": {"held", "ended"},
    "2+0, answers one by one, etcd away": {"held"},
    "2+0, one is enough, a host": {*LOST, "fewer", "all again"},
    "2+0, nothing to prepare, a rank or a host": {*LOST, "fenced"},
    "2+0, half a save is seen, a rank": {"half a save", "looked again", "trains again"},
    "2+0, one is told to stop": {"another coordinator", "ended"},
}
"""What must have happened in it at all."""

ALL = {
    **IN_CI,
    "2+0, one fault, all steps apart": Setting(2, 0, 1, BRIEF, fine=True),
    "2+0, one fault, with saves": Setting(2, 0, 1, BRIEF, saves=True),
    "2+1, one fault, none frozen": Setting(2, 1, 1, BRIEF),
    "2+0, half a save is seen, one fault": Setting(2, 0, 1, BRIEF, saves=True, torn=True),
    "3+1, half a save is seen, a rank": TORN._replace(members=3, spares=1),
    "2+1, one is told to stop": STOPPED,
    "2+1, half a save is seen, one is told to stop": STOPPED._replace(torn=True),
    "2+1, half a save is seen, a host": _setting(2, 1, 1, "host", saves=True)._replace(torn=True),
    "2+1, a frozen node": _setting(2, 1, 1, "freeze"),
    "2+1, a host, with saves": _setting(2, 1, 1, "host", saves=True),
    "3+1, a rank, etcd away": _setting(3, 1, 1, "rank away"),
    "3+1, cut off": _setting(3, 1, 1, "cut"),
    "3+1, a host": _setting(3, 1, 1, "host"),
    "2+1, a host, ranks stay": _STAYS,
    "2+1, cut off, ranks stay": _STAYS._replace(kinds=frozenset({"cut"})),
    "2+1, cut off from all, ranks stay": _STAYS._replace(kinds=frozenset({"isolate"})),
    "2+0, ranks end, one fault": Setting(2, 0, 1, BRIEF, ends=True),
    "2+1, ranks end, cut off": _OF_A_LOST_NODE,
    "3+0, answers one by one, etcd away": _setting(3, 0, 1, "away")._replace(rounds=True),
    "2+0, two faults: ranks, hosts, etcd away": _setting(2, 0, 2, "rank host away"),
    "2+0, nothing to prepare, one fault of any kind": Setting(2, 0, 1, open=True),
    "2+0, nothing to prepare, one fault, all steps apart": Setting(2, 0, 1, BRIEF, fine=True, open=True),
    "2+0, nothing to prepare, ranks end, with saves": Setting(
        2, 0, 1, BRIEF, saves=True, ends=True, open=True
    ),
    "2+1, nothing to prepare, one fault, none frozen": Setting(2, 1, 1, BRIEF, open=True),
    "3+1, nothing to prepare, a host": _setting(3, 1, 1, "host")._replace(open=True),
    "2+0, two faults: ranks, late writes": _setting(2, 0, 2, "rank slow slowput", fine=True),
    "2+0, one is enough, one fault": Setting(2, 0, 1, BRIEF, least=1),
    "3+0, two are enough, a host": _setting(3, 0, 1, "host")._replace(least=2),
    "2+0, all hosts, without their log_dirs": FORGETS,
}

DELAYED_IN_CI = {
    "3+1, a frozen node": (_setting(3, 1, 1, "freeze"), 0),
    "3+1, cut off from all": (_setting(3, 1, 1, "isolate"), 1),
    "2+1, before the first plan, one fault of any kind": (Setting(2, 1, 1, cold=True), 0),
}
"""What is too much to be explored whole: with how many delays it is (``explore_with_delays``)."""

DELAYED = {
    "2+0, one is enough, two faults: ranks, hosts": (_setting(2, 0, 2, "rank host")._replace(least=1), 1),
    "3+0, two are enough, two faults: ranks, hosts": (_setting(3, 0, 2, "rank host")._replace(least=2), 0),
    "2+1, all are needed, bad ones replaced, two faults: ranks, hosts": (
        _setting(2, 1, 2, "rank host")._replace(least=2),
        0,
    ),
    "3+1, a frozen node": (_setting(3, 1, 1, "freeze"), 2),
    "3+1, cut off from all": (_setting(3, 1, 1, "isolate"), 2),
    "3+1, a host, ranks stay": (_STAYS._replace(members=3), 1),
    "2+1, two hosts, ranks stay": (_STAYS._replace(faults=2), 0),
    "2+1, two faults: ranks, a frozen node": (_setting(2, 1, 2, "rank freeze"), 0),
    "3+1, one fault of any kind, ranks end": (Setting(3, 1, 1, ends=True), 1),
    "3+1, two faults: ranks, late writes": (_setting(3, 1, 2, "rank slow slowput"), 1),
    "2+1, two faults of any kind, with saves": (Setting(2, 1, 2, saves=True), 1),
    "2+1, before the first plan, one fault of any kind": (Setting(2, 1, 1, cold=True), 1),
    "2+1, answers one by one, etcd away or cut off": (
        _setting(2, 1, 1, "cutall away cut")._replace(rounds=True),
        1,
    ),
}

MUTANTS_IN_CI = [
    Mutant("own_first", Setting(2, 0, 0, cold=True), "a node fences itself"),
    Mutant("all_done", Setting(2, 0, 0, ends=True), "the run ends with 0"),
    Mutant("drained", _setting(2, 0, 1, "rank"), "incarnation 1 is planned"),
    Mutant("promise", _setting(2, 0, 1, "away"), "ranks ended"),
    Mutant("one_boot absent", _setting(2, 0, 1, "usurp"), "incarnation 1 is planned"),
    Mutant("fence", _setting(2, 1, 1, "cut"), "incarnation 1 is planned"),
    Mutant("unfreed", _STAYS, "incarnation 1 is planned"),
    Mutant("unanimity", _setting(2, 1, 1, "cut"), "incarnation 1 is planned"),
    Mutant("deadman", _setting(2, 1, 1, "freeze"), "incarnation 1 is planned"),
    Mutant("plan_revision", _setting(2, 0, 2, "rank slow"), "the plan goes back"),
    Mutant("look", TORN, "it ends for what a node saw"),
    Mutant("look", STOPPED, "it begins at"),
]

DELAYED_MUTANTS_IN_CI = [*MUTANTS_IN_CI, Mutant("begun_anew", FORGETS, "it begins from nothing")]

MUTANTS = [
    *DELAYED_MUTANTS_IN_CI,
    # Where one write plans and begins, the plan's revision guards nothing that nothing else does.
    *(
        mutant._replace(where=mutant.where._replace(open=True))
        for mutant in MUTANTS_IN_CI
        if mutant.guards != "plan_revision"
    ),
    Mutant("look", _setting(2, 1, 2, "rank host", saves=True), "it begins at"),
    Mutant("fence", _setting(2, 0, 1, "cut")._replace(least=1), "incarnation 1 is planned"),
    Mutant("silenced", _OF_A_LOST_NODE, "a node ends with 0 although"),
    Mutant("believed", _OF_A_LOST_NODE, "incarnation 1 is planned although"),
    Mutant("stays_done", _OF_A_LOST_NODE, "the run ends with 0"),
    Mutant("own_revision restating", _setting(2, 0, 3, "rank slowput", fine=True), ""),
]
