"""``python -m benchmarks.campaigns.loops --loops 300 --seed 1``: loops as people write them, one rank killed.

A seed composes each from parts and draws the place of a step where a rank dies. Losses, gradient norms,
batches and final states are compared with those of the undisturbed training, which is kept by composition.
"""

import json
import math
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns import engine
from benchmarks.campaigns.engine import Row
from benchmarks.harness import kept, machine
from benchmarks.harness.launched import ROOT, clean_environ

_JOB = ROOT / "benchmarks" / "jobs" / "loops_zoo.py"
_DATA = _JOB.with_name("loops_data.py")
_UNDISTURBED = ROOT / "build" / "loops_zoo"
_RUN_S = 240.0
_PARTS = {
    "model": ("plain", "tied", "re-assigned", "hidden", "batch norm", "extra", "parts"),
    "parallel": (
        *("ddp", "ddp static", "ddp unused", "ddp views", "ddp own buffers"),
        *("fsdp", "fsdp nested", "hsdp", "by hand"),
    ),
    "update": ("one", "accumulation", "several", "critic", "closure", "scaler", "nan"),
    "data": (
        *("map", "iterable", "own sampler", "persistent", "infinite", "steps"),
        *("counts", "weights", "zip", "noise", "ahead"),
    ),
    "numbers": ("none", "before", "in", "behind"),
    "around": (
        *("nothing", "evaluation", "between", "in place", "early stop", "except", "handlers", "subprocess"),
        "break",
    ),
    "objects": ("none", "none", "queue", "average", "criterion", "own noise"),
    "size": ("same", "same", "same", "same", "shrink", "grow"),
}
_DIFFERS, _HANGS = _WRONG = ("differs in silence", "hangs")
VERDICTS = ("right", "refused", "told", *_WRONG)
_REFUSED = re.compile(r"FaultrunError: (.*)|(no usable checkpoint)")
_TOLD = ("draws random numbers behind the model's forward pass", " are those of rank ")
_TOLD_BETWEEN = "is drawn or changed behind step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``parts``: one of each of ``_PARTS``. ``rank`` dies in step ``at``, at this ``phase`` of it."""

    number: int
    parts: dict[str, str]
    stay: bool
    phase: str
    rank: int
    at: int

    @property
    def loop(self) -> str:
        """The composition, in words."""
        return ", ".join((*self.parts.values(), "stay" if self.stay else "restart"))

    @property
    def dies_before_numbers_between(self) -> bool:
        """Whether the rank draws numbers between this step and the next, and dies before it has."""
        return self.parts["around"] == "between" and self.at % 3 == 0 and self.phase in {"behind", "after"}

    @property
    def told(self) -> str:
        """For the job."""
        fault = {"phase": self.phase, "rank": self.rank, "at": self.at}
        return json.dumps({**self.parts, "stay": self.stay, **fault})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """``stayed``: a survivor kept its process; ``what``: the name of the refusal, or what differs."""

    verdict: str
    what: str
    stayed: bool


def draw(number: int, seed: int) -> Case:
    """The case of this number."""
    chance = random.Random(f"{seed} {number}")
    while True:
        parts = {name: chance.choice(known) for name, known in _PARTS.items()}
        stay = chance.random() < 0.5
        if parts["size"] != "same":  # so that a step is the same if fewer ranks share it
            parts |= {"model": "plain", "update": "one", "data": "map", "numbers": "none", "objects": "none"}
            stay = False
        if _can_be(parts, stay=stay):
            break
    at = chance.randint(2, 5 if parts["update"] == "accumulation" else 9)
    phases = ["data", "forward", "backward", "behind", "after"]
    if parts["around"] == "evaluation":
        phases.append("evaluation")
        at += at % 2
    if parts["update"] in {"several", "critic", "closure"}:
        phases.append("between")
    phase, rank = chance.choice(phases), chance.randrange(2)
    return Case(number=number, parts=parts, stay=stay, phase=phase, rank=rank, at=at)


def _can_be(parts: dict[str, str], *, stay: bool) -> bool:
    """Whether people could write it, as far as torch allows."""
    model, parallel, update, data, _, around, objects, size = parts.values()
    kind = parallel.partition(" ")[0]
    return not (
        (kind == "ddp" and model == "parts")
        or (
            kind in {"fsdp", "hsdp"}
            and (update in {"closure", "scaler"} or model == "tied" or size != "same")
        )
        or (kind == "fsdp" and not stay)  # whose shard dies with a rank, and the script makes no checkpoints
        or (parallel == "ddp static" and update in {"several", "critic", "closure", "accumulation"})
        or (update == "accumulation" and (data in {"infinite", "steps"} or model == "parts"))
        or (around == "except" and (stay or data == "steps"))
        or (update == "closure" and objects == "criterion")
        or (around == "break" and data in {"infinite", "steps"})
        or (size != "same" and around in {"except", "early stop", "break"})
    )


def run(case: Case, folder: Path) -> Seen:
    """Train it undisturbed, if it never was, and once more with a rank that dies; compare."""
    whole, said = _undisturbed(case)
    if refused := _REFUSED.search(said):
        return Seen(verdict="refused", what=refused[1] or refused[2], stayed=False)
    if not whole[0] or not whole[1]:
        return Seen(verdict=_DIFFERS, what=f"undisturbed: {said[-300:]}", stayed=False)
    try:
        hurt, said = _trained(case, folder)
    except subprocess.TimeoutExpired:
        return Seen(verdict=_HANGS, what=f"for {_RUN_S:.0f} s", stayed=False)
    if not (folder / "killed").exists():
        raise engine.TooLate
    stayed = " stayed" in said
    ended = "" if "exit code 0" in said else said.splitlines()[-1]
    what = _difference(case, whole, hurt, stayed=stayed) or ended
    if what and (refused := _REFUSED.search(said)):
        return Seen(verdict="refused", what=refused[1] or refused[2], stayed=stayed)
    named = (*_TOLD, _TOLD_BETWEEN) if case.dies_before_numbers_between else _TOLD
    told = any(words in said for words in named) and not {"batch", "missing"} & set(re.findall(r"\w+", what))
    verdict = "right" if not what else "told" if told else _DIFFERS
    return Seen(verdict=verdict, what=what, stayed=stayed)


def _undisturbed(case: Case) -> tuple[list[list[Row]], str]:
    """The same composition when nobody dies, which is trained once."""
    about = f"{case.parts} {case.stay} {_JOB.read_text()} {_DATA.read_text()}"
    kept = _UNDISTURBED / f"{zlib.crc32(about.encode()):08x}.json"
    if not kept.exists():
        folder = Path(tempfile.mkdtemp())
        (folder / "killed").touch()
        found = _trained(case, folder)
        shutil.rmtree(folder)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found))
    rows, said = json.loads(kept.read_text())
    return rows, said


def _trained(case: Case, folder: Path) -> tuple[list[list[Row]], str]:
    """The lines of each rank, and what was printed."""
    options = ["--worker_num=2", "--standby=none", "--tee=3", "--checkpoint_dir=ckpt", "--backoff=10ms..20ms"]
    if case.parts["size"] != "same":
        grows = case.parts["size"] == "grow"
        options += ["--min_worker_num=1", "--while_missing=wait", *(["--health_check=true"] if grows else [])]
    ran = subprocess.run(
        [sys.executable, "-m", "faultrun", *options, sys.executable, str(_JOB), case.told],
        cwd=folder,
        env={**clean_environ(), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    (folder / "console.txt").write_text(said := f"{ran.stdout}{ran.stderr}\nended with {ran.returncode}")
    return [kept.read(folder / f"seen-{rank}.jsonl") for rank in range(2)], said


def _difference(case: Case, whole: list[list[Row]], hurt: list[list[Row]], *, stayed: bool) -> str:
    """The first that is not as it was undisturbed; "" if all is."""
    if case.parts["size"] != "same":
        return _difference_of_sizes(case, whole, hurt)
    for rank in range(2):
        due = {row["step"]: row for row in whole[rank]}
        if not stayed and case.parts["model"] == "batch norm":  # they come from the rank that saved
            due["end"].pop("buffers")
        for row in hurt[rank]:
            wrong = [name for name, one in due[row["step"]].items() if repr(one) != repr(row[name])]
            if wrong:
                return f"rank {rank}, step {row['step']}: {', '.join(wrong)}"
        missing = due.keys() - {row["step"] for row in hurt[rank]} - {case.at}
        if missing:
            return f"rank {rank}: missing {', '.join(map(str, missing))}"
    return ""


def _difference_of_sizes(case: Case, whole: list[list[Row]], hurt: list[list[Row]]) -> str:
    """Whoever shares a step adds it up in another order."""
    norms = {row["step"]: row["norm"] for row in whole[0]}
    samples: dict[Any, set[int]] = {}
    for row in (*hurt[0], *hurt[1]):
        samples.setdefault(row["step"], set()).update(row["batch"])
        if not math.isclose(row["norm"], norms[row["step"]], rel_tol=1e-3):
            return f"step {row['step']}: norm"
    due = {row["step"]: {*row["batch"], *other["batch"]} for row, other in zip(*whole, strict=True)}
    wrong = [str(step) for step, all_ in due.items() if step != case.at and samples.get(step) != all_]
    return f"samples of step {', '.join(wrong)}" if wrong else ""


def _summary(rows: Sequence[Row]) -> list[str]:
    """A row for each part of a training: how its cases ended."""
    lines = [
        "",
        f"| part | cases | {' | '.join(VERDICTS)} | survivors stayed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    named = [f"{name}: {part}" for name, known in _PARTS.items() for part in dict.fromkeys(known)]
    for part in (*named, "all"):
        of = [row for row in rows if part == "all" or part.partition(": ")[2] in row["loop"].split(", ")]
        count = Counter(row["verdict"] for row in of)
        cells = (len(of), *(count[one] for one in VERDICTS), sum(bool(row["stayed"]) for row in of))
        lines.append(f"| {part} | {' | '.join(map(str, cells))} |")
    refusals = Counter(row["what"] for row in rows if row["verdict"] == "refused")
    return [*lines, "", *(f"* refused {count} times: {what}" for what, count in refusals.items())]


CAMPAIGN: engine.Campaign[Case, Seen] = engine.Campaign(
    name="loops",
    cases="loops",
    run=run,
    judge=lambda _, seen: [f"{seen.verdict}: {seen.what}"] if seen.verdict in _WRONG else [],
    columns={**engine.of_case("loop", "phase", "rank", "at"), **engine.of_seen("verdict", "what", "stayed")},
    summary=_summary,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code says whether no training differs in silence."""
    parser = engine.options("loops", __doc__, beside=2)
    parser.add_argument("--loops", type=int, default=300, help="so many [300]")
    asked = parser.parse_args(argv)
    engine.ends_with_us()
    rows = CAMPAIGN.carry_out([draw(number, asked.seed) for number in range(asked.loops)], asked)
    if asked.page is not None and rows:
        asked.page.write_text("\n".join(_page(rows, asked.seed)) + "\n", encoding="utf-8")
    return engine.exit_code(rows)


def _page(rows: Sequence[Row], seed: int) -> list[str]:
    """For people."""
    commits = ", ".join(dict.fromkeys(str(row.get("commit", kept.commit())) for row in rows))
    wrong = [f"* {row['number']}, dies {row['phase']} in step {row['at']}: {row['loop']}: {row['what']}"
             for row in rows if row["verdict"] in _WRONG]  # fmt: skip
    return [
        "# The zoo of loops",
        "",
        f"`make soak-loops N={len(rows)} SEED={seed}`, at {commits}. Machine: {machine.words()}.",
        "",
        "Trainings that a seed composes from parts, in each of which a rank dies. Loss,",
        "gradient norm and batch of each step, and the last state, are compared with the undisturbed one's.",
        *_summary(rows),
        *(["", "What differs in silence or hangs:", "", *wrong] if wrong else []),
    ]


if __name__ == "__main__":
    sys.exit(main())
