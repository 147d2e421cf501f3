"""The exception and the user's own frame, out of what Python prints."""

import pytest

from faultrun.core.diagnosis.tracebacks import gist, last_raised, telling_line, without_numbers
from faultrun.model.observed.evidence import Raised

PLAIN = """\
step: 5
Traceback (most recent call last):
  File "/home/me/train.py", line 41, in <module>
    main()
  File "/home/me/train.py", line 30, in step
    loss.backward()
  File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 630, in backward
    torch.autograd.backward(
    ^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: Expected 3 values
second line of the message
bye
"""

THROUGH_US = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 30, in step
    images, labels = next(batches)
  File "/home/me/src/launcher/faultrun/sdk/torch/stay/train_on.py", line 165, in taken
    return plain(one)
  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 733, in __next__
    data = self._next_data()
StopIteration
"""

CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
    g()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 9, in h
    raise mine.OwnError("no")
mine.OwnError: no
"""


RULE = "-" * 52
MINDSPORE = f"""

{RULE}
- Kernel error:
{RULE}
Launch kernel failed: Default/grad_reducer-DistributedGradReducer/AllReduce-op0

{RULE}
- The Function Call Stack: (For framework developers)
{RULE}
In file train.py:385~386
"""
LAUNCH = "Launch kernel failed: Default/grad_reducer-DistributedGradReducer/AllReduce-op0"
FRAME = 'Traceback (most recent call last):\n  File "a.py", line 2, in f\n'


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        (
            f"{FRAME}RuntimeError: {MINDSPORE}",
            Raised(kind="RuntimeError", message=LAUNCH, frame="a.py:2 in f"),
        ),
        (
            "\n".join(line for line in f"{FRAME}RuntimeError: {MINDSPORE}".splitlines() if line),
            Raised(kind="RuntimeError", message=LAUNCH, frame="a.py:2 in f"),
        ),
        (f"{FRAME}RuntimeError: \nstep 5\n", Raised(kind="RuntimeError", frame="a.py:2 in f")),
        (f"{FRAME}KeyError\n{RULE}\n", Raised(kind="KeyError", frame="a.py:2 in f")),
        (PLAIN, Raised(kind="RuntimeError", message="Expected 3 values", frame="train.py:30 in step")),
        (THROUGH_US, Raised(kind="StopIteration", frame="train.py:30 in step")),
        (CHAINED, Raised(kind="OwnError", message="no", frame="a.py:9 in h", came_from=("KeyError: 'x'",))),
        (
            "\n".join(f"[rank3]: {line}" for line in PLAIN.splitlines()),
            Raised(kind="RuntimeError", message="Expected 3 values", frame="train.py:30 in step"),
        ),
        (
            '  File "train.py", line 3\n    def\n       ^\nSyntaxError: invalid syntax\n',
            Raised(kind="SyntaxError", message="invalid syntax", frame="train.py:3"),
        ),
        (
            'Traceback (most recent call last):\n  File "a.py", line 2, in f\nKeyboardInterrupt\n',
            Raised(kind="KeyboardInterrupt", frame="a.py:2 in f"),
        ),
        ("all is well\n", None),
        ("Traceback (most recent call last):\n", None),
        ('Traceback (most recent call last):\n  File "a.py", line 2, in f\n    cut off here', None),
        ('Traceback (most recent call last):\n  File "a.py", line 2, in f\n!!! no exception\n', None),
    ],
)
def test_the_last_exception_and_its_innermost_frame_of_no_library(text: str, raised: Raised | None) -> None:
    assert last_raised(text.splitlines()) == raised


def test_where_all_frames_are_of_libraries_the_innermost_is_named() -> None:
    text = (
        'Traceback (most recent call last):\n  File "<frozen runpy>", line 1, in run\n'
        '  File "/usr/lib/python3.11/json/decoder.py", line 7, in decode\nValueError: x\n'
    )
    found = last_raised(text.splitlines())
    assert found is not None
    assert found.frame == "decoder.py:7 in decode"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (MINDSPORE, LAUNCH),
        ("no\nsecond line", "no"),
        (
            "For 'MatMul', x.\n\n" + RULE + "\n- C++ Call Stack: (For framework developers)\n",
            "For 'MatMul', x.",
        ),
        (f"{RULE}\n- Ascend Error Message:\n{RULE}\nEI0002: no answer", "EI0002: no answer"),
        ("- not a title:", "- not a title:"),
        (f"{RULE}\n- Title:\n{RULE}\n\n", ""),
        ("", ""),
        ("x" * 900, "x" * 500),
    ],
)
def test_what_an_exception_says_is_below_its_frameworks_rules_and_titles(message: str, line: str) -> None:
    assert gist(message) == line


def test_numbers_do_not_tell_failures_apart() -> None:
    assert without_numbers("at 0x7f3a in step 12 (loss 1.5e-3)") == "at # in step # (loss #)"


AT = "2026-11-21-20:02:25.084.848"
INFO = (
    f"[INFO] DISTRIBUTED(774,7fdb2f7fe6c0,python):{AT} [mindspore/ccsrc/x.cc:314] Start] Event base dispatch"
)
COPIES = "faultrun: this rank's shard is copied into memory every 15 steps from now on: a copy takes 8.31 ms"
WARNING = f"[WARNING] ME(774:1404,MainProcess):{AT} [mindspore/train/y.py:30] something"
ERROR = f"[ERROR] DISTRIBUTED(774,7fdb2f7fe6c0,python):{AT} [mindspore/ccsrc/z.cc:3] Connect] refused"
TORCH = (
    "[rank1]:[W1121 20:03:11.123456789 ProcessGroup.cpp:1250] Warning: destroy_process_group() was not called"
)
GLOG = "W1121 20:03:11.123456  7741 tcp.cc:12] no route"
RAISED = Raised(kind="InjectedError", message="injected in step 6", frame="")


@pytest.mark.parametrize(
    ("lines", "raised", "line"),
    [
        (["step 5", "  faultrun.x.InjectedError: injected in step 6", INFO], RAISED, 1),
        (["[rank1]: x.InjectedError: injected in step 6", "bye"], RAISED, 0),
        (["step 5", INFO, WARNING, TORCH, GLOG], None, 0),
        (["step 5", ERROR, INFO], None, 1),
        (["RuntimeError:", "injected in step 6", "in file x", INFO], RAISED, 1),
        (["InjectedError: another one", "step 5", INFO], RAISED, 1),
        ([WARNING, INFO], None, 1),
        (["loss 0.5", COPIES], None, 0),
    ],
)
def test_the_line_to_show_is_the_exceptions_own_or_the_last_that_is_no_chatter(
    lines: list[str], raised: Raised | None, line: int
) -> None:
    assert telling_line(lines, raised) == lines[line].strip().removeprefix("[rank1]: ")


def test_an_empty_log_has_no_line_to_show() -> None:
    assert telling_line([], RAISED) == ""


PIPELINE = f"""\
RuntimeError: Exception thrown from dataset pipeline. Refer to 'Dataset Pipeline Error Message'.

{RULE}
- Dataset Pipeline Error Message:
{RULE}
[ERROR] Invalid cifar10 file, failed to read data from: cif/data_batch_1.bin

{RULE}
- C++ Call Stack: (For framework developers)
{RULE}
mindspore/ccsrc/minddata/dataset/data_source/cifar_op.cc(142).
"""
INVALID = "Invalid cifar10 file, failed to read data from: cif/data_batch_1.bin"


def test_words_that_refer_to_another_place_give_way_to_what_stands_there() -> None:
    raised = last_raised(f"{FRAME}{PIPELINE}".splitlines())
    assert raised == Raised(kind="RuntimeError", message=INVALID, frame="a.py:2 in f")
    assert gist(PIPELINE.partition(": ")[2]) == INVALID
    referring = "Refer to 'Nothing'. It is not there."
    assert gist(referring) == referring


BOXED = """\
╭────────── Traceback (most recent call last) ─────────╮
│ /home/me/a_folder_with_a_long_name/another_one/tr │
│ ain.py:9 in <module>                              │
│                                                   │
│    8 def main(): hook(3)                          │
│ ❱  9 main()                                       │
│                                                   │
│ /home/me/a_folder_with_a_long_name/another_one/tr │
│ ain.py:5                                          │
│ in hook                                           │
│                                                   │
│ ❱  5 │   │   {}["lr"]                            │
│                                                   │
│ ╭─ locals ─╮                                      │
│ │ n = 3    │                                      │
│ ╰──────────╯                                      │
╰───────────────────────────────────────────────────╯
KeyError: 'lr'
"""
"""As rich draws it, in a narrow terminal and with locals."""


@pytest.mark.parametrize("before", ["", "[rank3]: ", " " * 29])
def test_a_box_around_the_frames_hides_nothing(before: str) -> None:
    lines = [before + line for line in BOXED.splitlines()]
    raised = last_raised(["[11/28/26 11:35:07] ERROR    it broke    train.py:5", *lines])
    assert raised == Raised(kind="KeyError", message="'lr'", frame="train.py:5 in hook")
    assert telling_line(lines, raised) == "KeyError: 'lr'"


def test_what_another_box_led_to_came_from_it() -> None:
    link = "The above exception was the direct cause of the following exception:"
    raised = last_raised(
        [*BOXED.splitlines(), "", link, "", *BOXED.replace("KeyError: 'lr'", "RuntimeError: no").splitlines()]
    )
    assert raised is not None
    assert (raised.kind, raised.came_from) == ("RuntimeError", ("KeyError: 'lr'",))


def test_a_group_of_exceptions_is_read_behind_its_rule() -> None:
    text = """\
  + Exception Group Traceback (most recent call last):
  |   File "/home/me/train.py", line 2, in f
  |     raise ExceptionGroup("both", [ValueError("one")])
  | ExceptionGroup: both (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/me/train.py", line 7, in g
    |     raise ValueError("one")
    | ValueError: one
    +------------------------------------
"""
    assert last_raised(text.splitlines()) == Raised(kind="ValueError", message="one", frame="train.py:7 in g")
