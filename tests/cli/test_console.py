"""stderr and stdout that are slow, full or gone, each in a process of its own."""

import subprocess
from pathlib import Path

import pytest

from support.machine.scripts import printed
from support.runs import FAULTRUN

_BEGIN = """
import os, sys
from faultrun.cli.console import say, settle
read_end, write_end = os.pipe()
os.dup2(write_end, 2)
def fill():
    os.set_blocking(write_end, False)
    try:
        while os.write(write_end, b"." * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(write_end, True)
def drain():
    os.set_blocking(read_end, False)
    text = b""
    try:
        while chunk := os.read(read_end, 65536):
            text += chunk
    except BlockingIOError:
        return text.strip(b".").decode()
"""


OFFERED = {
    "at once behind our name": ("say('one')", "one"),
    "with the next line and in order": (
        "fill(); say('one'); say('two'); drain(); say('three')",
        "one\nfaultrun: two\nfaultrun: three",
    ),
    "a last time at the end": ("fill(); say('last words'); drain(); settle()", "last words"),
    "with the next line when a disk was full": (
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 2); say('one'); os.dup2(write_end, 2); say('two')",
        "one\nfaultrun: two",
    ),
}


@pytest.mark.parametrize(("code", "lines"), OFFERED.values(), ids=OFFERED)
def test_a_line_is_offered_until_it_is_taken(code: str, lines: str) -> None:
    assert printed(f"{_BEGIN}{code}; print(drain(), end='')") == f"faultrun: {lines}\n"


@pytest.mark.long
def test_of_what_piles_up_whole_lines_are_kept_and_the_newest() -> None:
    code = """
fill()
for number in range(3000):
    say(f"{number} " + "x" * 40)
drain()
kept = ""
while not kept.endswith("2999 " + "x" * 40 + "\\n"):
    settle()
    kept += drain()
first = kept.splitlines()[0]
print(len(kept) < 66_000, first.startswith("faultrun: ") and first.endswith("x" * 40))
"""
    assert printed(_BEGIN + code) == "True True\n"


@pytest.mark.long
def test_a_reader_that_is_gone_and_a_name_that_is_no_utf8_are_no_trouble() -> None:
    assert printed(_BEGIN + r"say('\udc80'); print(drain(), end='')") == "faultrun: \\udc80\n"
    gone = "os.close(read_end); say('one'); say('two'); print('went on')"
    assert printed(_BEGIN + gone) == "went on\n"


def test_without_stderr_nothing_is_said() -> None:
    assert printed(_BEGIN + "os.close(2); say('one'); sys.stderr = None; say('two'); print('ok')") == "ok\n"


@pytest.mark.parametrize("verb", ["--version", "recipes", "docs"])
def test_an_answer_to_a_full_disk_ends_with_an_error_for_people(verb: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*FAULTRUN, verb], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 71
    what, because, hint = done.stderr.splitlines()
    assert what == "faultrun: the answer could not be written"
    assert because == "  because: standard output: No space left on device"
    assert hint.startswith("  try:     df -h")
