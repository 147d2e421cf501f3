"""What etcd does: transactions as a whole or not at all, leases that end, a leader that comes back.

Guards that ``Setting.away`` names are not looked at.
"""

from collections.abc import Iterator

from model import values
from model.cluster import GHOST, TTL, Etcd, Key, Office, Setting, State, Step
from model.mind import Move


def written(setting: Setting, etcd: Etcd, move: Move) -> Etcd:
    """etcd after the transaction: changed as a whole, or not at all."""
    if not all(_holds(setting, etcd, compare) for compare in move.compares):
        return etcd
    for what, *which in move.then:
        match what, which:
            case "plan", [int() as plan]:
                etcd = etcd._replace(plan=plan)
            case "lead", [int() as node, int() as boot, int() as lease]:
                etcd = etcd._replace(office=Office(node, boot, etcd.token + 1, lease), token=etcd.token + 1)
            case "resign", []:
                etcd = etcd._replace(office=None)
            case "alarm", [int() as life, int() as who]:
                known = tuple(one for one in etcd.alarms if one[0] != life)
                etcd = etcd._replace(alarms=(*known, (life, who)))
            case "quiet", [int() as life]:
                etcd = etcd._replace(alarms=tuple(one for one in etcd.alarms if one[0] != life))
            case "word", [Key() as key] if etcd.has_lease(key.node, key.lease):
                others = (one for one in etcd.keys if (one.node, one.boot) != (key.node, key.boot))
                etcd = etcd._replace(keys=tuple(sorted((*others, key))))
            case "forget", [int() as node, int() as boot]:
                etcd = etcd._replace(
                    keys=tuple(one for one in etcd.keys if (one.node, one.boot) != (node, boot))
                )
    return etcd


def _holds(setting: Setting, etcd: Etcd, compare: tuple[object, ...]) -> bool:
    match compare:
        case ("gone", int() as node, int() as boot):
            return etcd.key(node, boot) is None or "absent" in setting.away
        case ("silent", life):
            return all(one[0] != life for one in etcd.alarms)
        case ("unled",):
            return etcd.office is None or "create_once" in setting.away
        case ("plan", plan):
            return etcd.plan == plan or "plan_revision" in setting.away
        case ("word", int() as node, int() as boot, changed):
            key = etcd.key(node, boot)
            if "own_revision" in setting.away:
                return key is not None
            return key is not None and values.word_number(key.word) == changed
        case ("token", token):
            return (etcd.office is not None and etcd.office.token == token) or "token" in setting.away
        case _:
            raise AssertionError(compare)


def ends_leases(state: State) -> Iterator[Step]:
    etcd = state.etcd
    if not etcd.up:
        # Whoever leads etcd now has extended every lease.
        again = etcd._replace(up=True, leases=tuple((*one[:2], 0) for one in etcd.leases))
        yield Step("etcd comes back", state._replace(etcd=again))
        return
    look = values.plan_of(etcd.plan).header.look if etcd.plan else 0
    for key in etcd.keys:
        if key.boot == GHOST and key.word.look < look:
            looked = key._replace(word=key.word._replace(look=look))
            keys = tuple(sorted((*(one for one in etcd.keys if one != key), looked)))
            yield Step(
                f"the other host of {key.node} has looked", state._replace(etcd=etcd._replace(keys=keys))
            )
    for lease in etcd.leases:
        if lease[2] >= TTL:
            node, number, _ = lease
            keys = tuple(key for key in etcd.keys if (key.node, key.lease) != (node, number))
            led = etcd.office is not None and (etcd.office.node, etcd.office.lease) == (node, number)
            dropped = etcd._replace(
                keys=keys,
                office=None if led else etcd.office,
                leases=tuple(one for one in etcd.leases if one != lease),
            )
            yield Step(f"etcd drops lease {number} of {node}", state._replace(etcd=dropped))
