"""A small training that saves as one case of the zoo says, kills itself, and judges what it is given then.

No framework is imported: the files are such as frameworks write. ``got.jsonl`` has a line a life.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.campaigns.layouts_files import perform
from benchmarks.campaigns.layouts_plan import RIGHT, Case, Save, draw

LIFE = int(os.environ["FAULTRUN_INCARNATION"])
_PAUSE_S, _TOLD_S = 0.02, 2.8
_WRITTEN, _GOT, _TOLD = Path("written.json"), Path("got.jsonl"), Path("told")


def main() -> None:
    case, root = draw(int(sys.argv[1]), int(sys.argv[2])), Path("out").absolute()
    members: set[int] = set(json.loads(_WRITTEN.read_text())) if _WRITTEN.exists() else set()
    start = began(case, root, frozenset(members)) if LIFE else None
    if LIFE and (start is None or len(case.lives) == LIFE):
        print("step 100000000 loss 0.1", flush=True)
        return
    trained = 0
    for op in case.life(LIFE, start):
        if op.what == "step":
            begin = op.step - 3 if op.step < trained or op.step > trained + 3 else trained
            for step in range(max(begin, 0) + 1, op.step + 1):
                print(f"step {step} loss 0.5", flush=True)
                time.sleep(_PAUSE_S)
            trained = op.step
        elif op.what == "told" and not _TOLD.exists():
            _TOLD.touch()
            time.sleep(_TOLD_S)
        perform(op, root)
        if op.who.startswith("own ") and op.what not in {"tmp", "skip"}:
            members.add(int(op.who[-1]))
            note(_WRITTEN, json.dumps(sorted(members)))
        time.sleep(_PAUSE_S)
    os.kill(os.getpid(), signal.SIGKILL)


def began(case: Case, root: Path, members: frozenset[int]) -> Save | None:
    """Load what was given, as such a script does; None where there is nothing right to go on from."""
    due = case.newest_whole(root, members, LIFE - 1) if members else None
    given = os.environ.get("FAULTRUN_RESUME_FROM", "")
    chosen = [given] if given else []
    said = {name: case.verdict(root, due, chosen, told=name == "told") for name in ("told", "untold")}
    with _GOT.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"life": LIFE, "given": given, **said}) + "\n")
    for one in chosen:
        for path in case.loads().get(os.path.relpath(os.path.realpath(one), os.path.realpath(root)), ()):
            if (root / path).exists():
                (root / path).read_bytes()
    return due.save if due and said["untold"] == RIGHT else None


def note(path: Path, text: str) -> None:
    """Write it whole or not at all."""
    partial = path.with_suffix(".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
