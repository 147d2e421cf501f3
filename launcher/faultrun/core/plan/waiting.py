"""That nothing follows yet, as a value: people read ``reason``, code reads the other fields."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What has to come before anything follows; ``reason`` goes on after "waiting for".

    ``missing``: the nodes that are waited for, each by its name or as "another node"; empty where it is not
    nodes. ``hopeless``: those that are here cannot go on without them, so a longer wait does not help.
    ``limited``: whether ``--node_wait`` ends the wait.
    """

    reason: str
    missing: tuple[str, ...] = ()
    hopeless: bool = False
    limited: bool = True
