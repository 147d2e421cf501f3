"""A rank that kills itself once everybody trains, and whoever waits for its place is ready."""

from pathlib import Path
from typing import Any

from benchmarks.harness import journal
from benchmarks.harness.launched import Launched
from benchmarks.harness.notes import Note, select

SIGNAL = "now"
"""The file at which it does so."""
_START_S, _READY_S = 180.0, 300.0


def one_kill(
    run: Launched, folder: Path, *, steps: int, standbys: int, state: str = "ready"
) -> tuple[Note, list[dict[str, Any]]]:
    """The note of the rank that dies, and the lines that say that ``standbys`` are in ``state``."""

    def under_way() -> bool:
        return any(int(note.number) >= steps for note in select(run.notes, "step"))

    def ready() -> list[dict[str, Any]]:
        said = journal.of(journal.read(folder), "StandbyChanged")
        return [line for line in said if line["state"] == state]

    run.wait_for(under_way, within_s=_START_S, what="training")
    if standbys:
        run.wait_for(
            lambda: len({line["rank"] for line in ready()}) == standbys,
            within_s=_READY_S,
            what="the standbys",
            look_every_s=0.2,
        )
    there = ready()
    (folder / SIGNAL).touch()
    run.wait_for(lambda: bool(select(run.notes, "dying")), within_s=_START_S, what="the kill")
    return select(run.notes, "dying")[0], there


def weights_mib(standbys: list[dict[str, Any]]) -> dict[str, list[float]]:
    """What standbys weigh, where there are any."""
    return {"standby": [line["memory_bytes"] / (1 << 20) for line in standbys]} if standbys else {}
