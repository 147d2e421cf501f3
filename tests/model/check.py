"""``make check-model``: every exploration and every mutant, as a table; then walks for some minutes."""

import sys
import time

from model.cluster import Setting
from model.explore import Found, explore, explore_with_delays, walk
from model.runs import ALL, DELAYED, MUTANTS


def main(minutes: float, seed: int) -> int:
    """Print one line for each; 1 if a law broke, something got stuck or a mutant lived."""
    failed = False
    for name, setting in ALL.items():
        found = explore(setting)
        failed |= bool(found.bad or found.stuck or not found.complete)
        _tell(name, found)
    for name, (setting, delays) in DELAYED.items():
        found = explore_with_delays(setting, delays)
        failed |= bool(found.bad)
        _tell(f"{name}, {delays} delays", found)
    for mutant in MUTANTS:
        found = explore(mutant.where._replace(away=frozenset(mutant.guards.split())), live=not mutant.law)
        failed |= not (found.bad.startswith(mutant.law) if mutant.law else found.stuck)
        _tell(f"without {mutant.guards}{', nothing to prepare' * mutant.where.open}", found)
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        for setting in (Setting(2, 1, 2, saves=True), Setting(3, 1, 3, saves=True)):
            found = walk(setting, seed=seed, walks=200)
            failed |= bool(found.bad)
            _tell(f"{setting.members}+{setting.spares}, {setting.faults} faults, walks of seed {seed}", found)
        seed += 1
    return int(failed)


def _tell(name: str, found: Found) -> None:
    verdict = found.bad or (f"{found.stuck} stuck" if found.stuck else "holds" if found.complete else "cut")
    sys.stdout.write(
        f"{name:58} {found.states:>9} states {found.transitions:>10} steps "
        f"depth {found.depth:>3} {found.seconds:>7.1f} s  {verdict}\n"
    )
    if found.trace and verdict != "holds" and not name.startswith("without"):
        sys.stdout.write("".join(f"    {label}\n" for label in found.trace))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
