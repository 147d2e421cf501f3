"""Breadth first over every thing that can happen; random walks where that is too much."""

import random
import time
from array import array
from typing import NamedTuple

from model.cluster import Setting, State
from model.environment import begun, steps
from model.laws import SOMETIMES, broken, good


class Found(NamedTuple):
    """What an exploration saw. ``stuck`` counts states from which nothing good can be reached any more."""

    states: int
    transitions: int
    depth: int
    seconds: float
    complete: bool
    bad: str
    stuck: int
    sometimes: frozenset[str]
    trace: tuple[str, ...]


def explore(setting: Setting, *, most: int = 3_000_000, seconds: float = 1e9, live: bool = True) -> Found:
    """Every reachable state, once; ends at the first broken law."""
    began = time.monotonic()
    first = begun(setting)
    number = {hash(first): 0}
    level, came, came_by = [first], array("i", [-1]), [""]
    backwards: tuple[array[int], array[int]] = (array("i"), array("i"))
    fine = bytearray([good(setting, first)])
    sometimes: set[str] = set()
    transitions = depth = 0
    bad, last = "", -1
    while level and not bad and len(number) < most and time.monotonic() - began < seconds:
        following: list[State] = []
        for state in level:
            here = number[hash(state)]
            for label, after, fault, _ in steps(setting, state):
                transitions += 1
                name = hash(after)
                there = number.get(name)
                if there is None:
                    there = number[name] = len(number)
                    following.append(after)
                    came.append(here)
                    came_by.append(label)
                    fine.append(live and good(setting, after))
                    sometimes |= {
                        what for what, is_so in SOMETIMES.items() if what not in sometimes and is_so(after)
                    }
                    bad = broken(setting, state, after)
                elif state.etcd.plan != after.etcd.plan or setting.kinds <= {"away"}:
                    bad = broken(setting, state, after)
                if live and not fault and there != here:
                    backwards[0].append(there)
                    backwards[1].append(here)
                if bad:
                    last = here
                    came_by.append(label)
                    break
            if last >= 0:
                break
        level, depth = following, depth + 1
    complete = not level and not bad
    lost = [] if bad or not live or not complete else _stuck(fine, backwards)
    trace = [came_by[-1]] if bad else []
    at = last if bad else lost[0] if lost else -1
    while at > 0:
        trace.append(came_by[at])
        at = came[at]
    took = time.monotonic() - began
    return Found(
        len(number),
        transitions,
        depth,
        took,
        complete,
        bad,
        len(lost),
        frozenset(sometimes),
        tuple(trace[::-1]),
    )


def explore_with_delays(setting: Setting, delays: int, *, seconds: float = 1e9) -> Found:
    """Every state that is reached if at most ``delays`` times somebody is kept waiting.

    Nobody waits if the first who can act does, and time passes when nobody can: whoever else acts first, and
    time that passes before, is a delay. Fate is free: faults strike and end, leases are dropped, at any time.
    """
    began, transitions = time.monotonic(), 0
    came: dict[int, tuple[int, str]] = {}
    sometimes: set[str] = set()
    first = begun(setting)
    now, bad, last, cut = [(first, hash(first), "")], "", -1, False
    for _ in range(delays + 1):
        later: list[tuple[State, int, str]] = []
        while now and not bad and time.monotonic() - began < seconds:
            state, before, label = now.pop()
            here = hash(state)
            if here in came:
                continue
            came[here] = (before, label)
            sometimes |= {what for what, is_so in SOMETIMES.items() if what not in sometimes and is_so(state)}
            acts = 0
            for name, after, _fault, fate in steps(setting, state):
                transitions += 1
                bad = broken(setting, state, after)
                if bad:
                    last, came[-1] = -1, (here, name)
                    break
                if hash(after) not in came:
                    (now if fate or not acts else later).append((after, here, name))
                acts += not fate
        cut = bool(now)
        if bad or cut:
            break
        now = later
    trace = []
    while bad and last in came and came[last][1]:
        last, label = came[last]
        trace.append(label)
    took = time.monotonic() - began
    return Found(
        len(came),
        transitions,
        delays,
        took,
        not bad and not cut,
        bad,
        0,
        frozenset(sometimes),
        tuple(trace[::-1]),
    )


def _stuck(fine: bytearray, backwards: "tuple[array[int], array[int]]") -> list[int]:
    before: dict[int, list[int]] = {}
    for there, here in zip(*backwards, strict=True):
        before.setdefault(there, []).append(here)
    todo = [at for at, is_fine in enumerate(fine) if is_fine]
    while todo:
        for at in before.get(todo.pop(), ()):
            if not fine[at]:
                fine[at] = 1
                todo.append(at)
    return [at for at, is_fine in enumerate(fine) if not is_fine]


def walk(setting: Setting, *, seed: int, walks: int, length: int = 200) -> Found:
    """Random walks; each is the same again for the same seed."""
    began, transitions = time.monotonic(), 0
    seen: set[int] = set()
    sometimes: set[str] = set()
    for one in range(walks):
        chance = random.Random(f"{seed} {one}")
        state, trace = begun(setting), []
        for _ in range(length):
            label, after, *_ = chance.choice(list(steps(setting, state)))
            transitions += 1
            trace.append(label)
            bad = broken(setting, state, after)
            sometimes |= {what for what, is_so in SOMETIMES.items() if what not in sometimes and is_so(after)}
            seen.add(hash(after))
            state = after
            if bad:
                took = time.monotonic() - began
                return Found(
                    len(seen), transitions, length, took, False, bad, 0, frozenset(sometimes), tuple(trace)
                )
    took = time.monotonic() - began
    return Found(len(seen), transitions, length, took, True, "", 0, frozenset(sometimes), ())
