"""A run whose control socket is abused by a process of the same user: it recovers and ends as without."""

import contextlib
import json
import os
import random
import socket

from support.runs import Launcher

_KINDS = ("hello", "ack", "saved", "failed", "step", "save", "status", "gasp", "")
_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1,
    10**400,
    1e308,
    float("nan"),
    [],
    {},
    [10**30],
    "\ud800",
    "a\0b",
    "\x1b[2J" * 500,
)
_FIELDS = (
    "rank",
    "incarnation",
    "step",
    "path",
    "why",
    "took_s",
    "size_bytes",
    "replica_group",
    "deadline_s",
)


def nonsense(chance: random.Random) -> bytes:
    """A line that may introduce a worker, half of the time as it should be; or bytes."""
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(200)) + b"\n"
    content = {name: chance.choice(_VALUES) for name in chance.sample(_FIELDS, 4)}
    if chance.random() < 0.5:
        content |= {"rank": chance.randrange(3), "incarnation": 0, "step": 5}
    return json.dumps({"kind": chance.choice(_KINDS), **content}).encode() + b"\n"


def test_nonsense_and_connections_that_nobody_closes_change_nothing(launcher: Launcher) -> None:
    chance = random.Random(7)
    run = launcher.run("train_in_the_first_life()", "--checkpoint_dir=ck").trains(range(2))
    address = json.loads((run.log_dir / "run.json").read_text())["socket"]
    with contextlib.ExitStack() as kept:
        for _ in range(400):
            one = kept.enter_context(socket.socket(socket.AF_UNIX))
            one.settimeout(20)
            one.connect(address)
            with contextlib.suppress(ConnectionError):
                for _ in range(chance.randrange(4)):
                    one.sendall(nonsense(chance))
        assert len(list(os.scandir(f"/proc/{run.pid}/fd"))) < 250
        run.kill(1)
        assert run.ends() == 0
    run.event("IncarnationStarted", incarnation=1)
