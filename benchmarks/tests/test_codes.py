"""The matrix of codes: what is read from a run, how it is judged and told, and runs that are harmed."""

import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benchmarks.campaigns.codes_lives import Life, Lives, began_anew, twice
from benchmarks.campaigns.codes_page import page, reading, table
from benchmarks.campaigns.codes_plan import (
    CODES,
    CONTENDERS,
    FAULTRUN,
    STANDBYS,
    TORCHRUN,
    YARDSTICK,
    Cell,
    Code,
    Contender,
    Fault,
    Size,
    cells,
)
from benchmarks.campaigns.codes_rows import Row, Rows, Verdict, campaign, read
from benchmarks.campaigns.codes_run import Seen, run, tear
from benchmarks.campaigns.engine import options
from benchmarks.harness.launched import Overdue

RIGHT = "final step 40 loss 0.25 digest 0badcafe"
TRAIN = """
import json, os, struct, sys, time
from pathlib import Path

named = dict(word[2:].split("=", 1) for word in sys.argv[1:])
out, last, every = Path(named["output_dir"]), int(named["steps"]), int(named["save_every"])
handed, rank = named.get("resume", ""), os.environ["RANK"]
step = 0
if handed:
    data = Path(handed).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    step = int(json.loads(data[8 : 8 + length])["__metadata__"]["step"])
while step < last:
    time.sleep(float(named["step_s"]))
    step += 1
    if rank == "0":
        print(f"step {step} loss {1 / step!r}", flush=True)
        if step % every == 0:
            weight = {"dtype": "I64", "shape": [64], "data_offsets": [0, 512]}
            header = json.dumps({"__metadata__": {"step": str(step)}, "weight": weight}).encode()
            content = struct.pack("<Q", len(header)) + header + bytes(512)
            (out / f"part-{step}").write_bytes(content)
            (out / f"part-{step}").replace(out / f"step-{step}.safetensors")
if rank == "0":
    print(f"final step {step} loss {1 / step!r} digest 0badcafe", flush=True)
"""
"""Follows the contract of the examples without a framework; begins anew if no checkpoint is handed over."""


def a_code(folder: Path) -> Code:
    script = folder / "train.py"
    if not script.exists():
        script.write_text(TRAIN)
    options = ("--framework=plain", "--checkpoint_dir=out", "--resume_arg=--resume={checkpoint}")
    return Code(name="toy", script=script, options=options, checkpoints="step-*", distributions=("pytest",))


def a_row(
    code: Code, contender: Contender, fault: Fault, *, number: int = 0, seen: Seen | None = None
) -> Row:
    seen = seen or Seen(codes=[0], final=RIGHT)
    cell = Cell(code=code, fault=fault, contender=contender, round=number)
    row = campaign(lambda _cell, _folder: seen).row(cell, Path("elsewhere"))
    return Row.of({**row, "load": "0.5", "took_s": 3.0})


def rows_of(*made: Row) -> Rows:
    return Rows(map(asdict, made))


def lives(*steps: list[int]) -> list[Life]:
    return [Life(Path("x"), steps=numbers) for numbers in steps]


def test_steps_and_the_last_line_are_found_among_progress_bars_and_other_talk() -> None:
    life = Life(Path("x"))
    talk = (
        "loading\n  5%|▌   | 2/40 [00:01]\rstep 1 loss 0.5\n"
        "[0] step 2 loss 1e-05\nstep 3\nstep 4 losses 3\nfinal step 2 loss 0.25 digest 0badcafe\n"
    )
    life.tell(talk, now_s=7.0)
    assert (life.steps, life.seen_at_s) == ([1, 2], [7.0, 7.0])
    assert life.final == "final step 2 loss 0.25 digest 0badcafe"


def test_lives_are_read_in_order_and_a_line_only_once_it_is_ended(tmp_path: Path) -> None:
    for name, text in (("attempt_10", "step 3 loss 1\nstep 4 lo"), ("attempt_9", "step 2 loss 1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stdout.log").write_text(text)
    seen = Lives(tmp_path, "*/stdout.log")
    seen.look()
    assert [life.steps for life in seen.all] == [[2], [3]]
    with (tmp_path / "attempt_10" / "stdout.log").open("a") as file:
        file.write("ss 1\n")
    seen.look()
    assert [life.steps for life in seen.all] == [[2], [3, 4]]
    assert seen.step == 4


def test_steps_that_were_made_before_are_counted_and_a_fresh_start_is_seen() -> None:
    assert twice(lives([1, 2, 3, 4, 5], [3, 4, 5, 6])) == 3
    assert twice(lives([1, 2, 3], [4, 5])) == 0
    assert twice(lives([1, 2, 3], [2, 3], [3, 4])) == 3
    assert began_anew(lives([1, 2], [], [1, 2]))
    assert not began_anew(lives([], [1, 2], [3]))


def test_the_largest_file_of_the_newest_checkpoint_is_cut_in_the_middle(tmp_path: Path) -> None:
    for step, size in ((9, 90), (10, 50)):
        inside = tmp_path / f"checkpoint-{step}" / "deep"
        inside.mkdir(parents=True)
        for name, length in (("optimizer.pt", size), ("args.bin", 7)):
            (inside / name).write_bytes(bytes(length))
            os.utime(inside / name, (step, step))
    assert tear(tmp_path, "checkpoint-*") == tmp_path / "checkpoint-10" / "deep" / "optimizer.pt"
    assert (tmp_path / "checkpoint-10" / "deep" / "optimizer.pt").stat().st_size == 25
    assert (tmp_path / "checkpoint-9" / "deep" / "optimizer.pt").stat().st_size == 90
    with pytest.raises(Overdue, match="no checkpoint is called"):
        tear(tmp_path, "*.ckpt")


def test_every_cell_has_what_it_is_compared_with_before_it() -> None:
    plan = list(cells(CODES, tuple(Fault), CONTENDERS, rounds=3))
    assert len(plan) == len(set(plan))
    for code in CODES:
        of_code = [cell for cell in plan if cell.code is code]
        assert {cell.contender for cell in of_code[:2]} == {TORCHRUN, YARDSTICK}
        kills = [cell.contender for cell in of_code if cell.fault is Fault.KILL]
        assert {kills.count(contender) for contender in CONTENDERS} == {3}
    alone = list(cells(CODES[:1], [Fault.TORN], [FAULTRUN], rounds=3))
    first, second = ((cell.fault, cell.contender) for cell in alone)
    assert (first, second) == ((Fault.NONE, TORCHRUN), (Fault.TORN, FAULTRUN))


def test_a_run_is_judged_by_the_last_line_of_the_undisturbed_one_of_its_length(tmp_path: Path) -> None:
    code = a_code(tmp_path)
    killed = a_row(code, FAULTRUN, Fault.KILL)
    assert rows_of().verdict(killed) is Verdict.UNKNOWN
    rows = rows_of(a_row(code, TORCHRUN, Fault.NONE))
    assert rows.verdict(killed) is Verdict.SAME
    assert rows.verdict(replace(killed, final=RIGHT.replace("0bad", "0bac"))) is Verdict.OTHER
    assert rows.verdict(replace(killed, anew=True, twice=25)) is Verdict.FRESH
    assert rows.verdict(replace(killed, codes=(143, 93), anew=True)) is Verdict.FAILED
    assert rows.verdict(replace(killed, codes=(0,), final="")) is Verdict.FAILED
    assert rows.verdict(replace(killed, codes=(None,), overdue="no end")) is Verdict.OVERDUE
    assert rows.verdict(a_row(code, STANDBYS, Fault.KILL)) is Verdict.UNKNOWN, "a longer run ends otherwise"
    rows = rows_of(a_row(code, YARDSTICK, Fault.NONE))
    assert rows.verdict(a_row(code, STANDBYS, Fault.KILL)) is Verdict.SAME


def test_a_matrix_that_was_cut_off_goes_on_and_forgets_rows_of_an_example_that_changed(
    tmp_path: Path,
) -> None:
    code, kept = a_code(tmp_path), tmp_path / "attempts" / "codes.jsonl"
    made, missing = (Cell(code=code, fault=fault, contender=TORCHRUN) for fault in (Fault.NONE, Fault.STOP))
    asked = options("codes", "").parse_args([f"--keep={kept}"])
    ran: list[Cell] = []

    def run_it(cell: Cell, _folder: Path) -> Seen:
        ran.append(cell)
        return Seen(codes=[0], final=RIGHT)

    campaign(run_it, [code]).carry_out([made], asked)
    with kept.open("a") as file:
        file.write('{"code": "toy", "fau')
    campaign(run_it, [code]).carry_out([made, missing], asked)
    assert ran == [made, missing]
    code.script.write_text(f"{TRAIN}\n# changed\n")
    assert read(kept, [code]) == []


def test_the_page_shows_what_goes_wrong_loudly_and_reads_it_in_plain_words(tmp_path: Path) -> None:
    code = a_code(tmp_path)
    made = [a_row(code, contender, Fault.NONE) for contender in (FAULTRUN, TORCHRUN)]
    for number, after_s in enumerate((2.0, 9.0, 3.0)):
        seen = Seen(codes=[0], final=RIGHT, twice=number % 2, after_s=after_s)
        made.append(a_row(code, FAULTRUN, Fault.KILL, number=number, seen=seen))
        slower = replace(seen, twice=5, after_s=2 * after_s)
        made.append(a_row(code, TORCHRUN, Fault.KILL, number=number, seen=slower))
    fresh = Seen(codes=[1, 0], final=RIGHT, twice=25, anew=True)
    made.append(a_row(code, TORCHRUN, Fault.STOP, seen=fresh))
    torn = Seen(codes=[-9, 1], harm="out/step-20", why="EOFError: Ran out of input")
    made.append(a_row(code, TORCHRUN, Fault.TORN, seen=torn))
    other = Seen(codes=[0], final=RIGHT.replace("0bad", "0bac"), twice=10, after_s=4.0)
    made.append(a_row(code, TORCHRUN, Fault.SAVE, seen=other))
    rows = rows_of(*made)
    lines = table(rows, [code])
    assert lines[2:] == [
        "| toy | faultrun | same | same, 0 to 1 twice, 3.00 s | - | - | - |",
        "| toy | torchrun | same | same, 5 twice, 6.00 s | **other result, exit 0**, 10 twice, 4.00 s"
        " | **ended with 1**, 0 twice | **silent fresh start**, 25 twice |",
    ]
    told = "\n".join(reading(rows, [code]))
    assert "faultrun: 3 of 3 disturbed runs ended like the undisturbed one, bit for bit." in told
    assert "torchrun: 3 of 6 disturbed runs" in told
    assert "silent fresh start: toy (stop); other result with exit code 0: toy (save); ended with" in told
    assert "faultrun 3.00 s (torchrun takes 2.0 times as long); torchrun 6.00 s" in told
    whole = page(rows, [code], {"deepspeed": "it is not installed"})
    deed = "toy, torn, torchrun: out/step-20 · `EOFError: Ran out of input` · ended with · exit codes -9, 1"
    assert deed in whole
    assert "Not run: deepspeed: it is not installed." in whole


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.TORN, Fault.STOP])
def test_a_training_is_harmed_started_again_and_compared(fault: Fault, tmp_path: Path) -> None:
    code = a_code(tmp_path)
    short = Size(steps=24, save_every=4, step_s=0.05)
    ours = replace(FAULTRUN, size=short)
    seen = {}
    for number, (what, contender) in enumerate(((Fault.NONE, ours), (fault, ours))):
        folder = tmp_path / str(number)
        folder.mkdir()
        seen[what] = run(Cell(code=code, fault=what, contender=contender), folder)
    right, harmed = seen[Fault.NONE], seen[fault]
    assert (right.codes, right.twice, right.overdue) == ([0], 0, ""), right
    assert harmed.codes == [-9 if fault is Fault.TORN else 143, 0], harmed
    rows = rows_of(replace(a_row(code, TORCHRUN, Fault.NONE, seen=right), steps=24))
    one = replace(a_row(code, ours, fault, seen=harmed), steps=24)
    assert rows.verdict(one) is Verdict.SAME
    least = 6 if fault is Fault.TORN else 2
    assert harmed.twice >= least, "a torn save is not resumed, but the one before is"
    assert not harmed.anew
