"""What a dying interpreter knows of its exit code, in every way that a script may end."""

import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.places import ROOT

SDK = ROOT / "launcher" / "faultrun" / "sdk" / "worker"
BEGIN = """
import atexit, contextlib, os, sys, threading
from interpreter_exit import ExitWatch
ending = ExitWatch()
ending.begin()
atexit.register(lambda: print("zero" if ending.is_zero() else "unknown"))
def leaves(code): sys.exit(code)
"""


def ends(body: str, python: str = sys.executable) -> tuple[str, int]:
    """What was known, and the code that came."""
    done = subprocess.run(
        [python, "-S", "-c", BEGIN + body],
        env={**os.environ, "PYTHONPATH": str(SDK), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip(), done.returncode


ZERO = {
    "a last line": "pass",
    "a block": "if True:\n with contextlib.suppress(OSError): os.stat('/')",
    "exit by a function": "leaves(0)",
    "exit without a code": "sys.exit()",
    "exit after a caught error": "try: 1/0\nexcept ZeroDivisionError: sys.exit(0)",
    "exit with what a function returns": "def main(): ending.begin()\nsys.exit(main())",
    "a caught exit": "try: sys.exit(3)\nexcept SystemExit: pass",
}
UNKNOWN = {
    "a code": "leaves(3)",
    "a code that is caught as zero first": "try: sys.exit(0)\nexcept SystemExit: sys.exit(3)",
    "a caught exit that is kept": (
        "def f():\n try: sys.exit(0)\n except SystemExit as e: kept = e\n raise SystemExit(4)\nf()"
    ),
    "a message": "sys.exit('no')",
    "an exception": "1/0",
    "an interrupt": "raise KeyboardInterrupt",
    "a bare SystemExit": "raise SystemExit(0)",
    "a bare SystemExit after a caught exit": "try: sys.exit(0)\nexcept SystemExit: pass\nraise SystemExit(4)",
}


@pytest.mark.parametrize("body", ZERO.values(), ids=ZERO)
def test_a_script_that_ends_well_is_known_to(body: str) -> None:
    assert ends(body) == ("zero", 0)


@pytest.mark.parametrize("body", UNKNOWN.values(), ids=UNKNOWN)
def test_a_script_that_may_have_ended_in_another_way_is_not_said_to_have_ended_well(body: str) -> None:
    assert ends(body)[0] == "unknown"


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_it_is_known_in_every_python(version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"python{version} is not installed")
    assert {name: ends(body, python) for name, body in ZERO.items()} == dict.fromkeys(ZERO, ("zero", 0))
    assert {ends(body, python)[0] for body in UNKNOWN.values()} == {"unknown"}


LEAVES = st.sampled_from(
    [
        *("pass", "raise OSError", "threading.Thread(target=leaves, args=(0,)).start()"),
        *(
            *("sys.exit(0)", "sys.exit(2)", "leaves(0)", "leaves(5)"),
            *("raise SystemExit(0)", "raise SystemExit(6)"),
        ),
    ]
)
AROUND = st.sampled_from(
    [
        "try:\n{0}\nfinally:\n pass",
        "try:\n{0}\nexcept OSError:\n pass",
        "try:\n{0}\nexcept SystemExit:\n pass",
        "try:\n{0}\nexcept BaseException as error:\n kept = error",
        "with contextlib.suppress(OSError):\n{0}",
        "def inner():\n{0}\ninner()",
        "for _ in range(2):\n{0}",
    ]
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Some statements, each in up to three blocks."""
    body = []
    for _ in range(draw(st.integers(1, 3))):
        text = draw(LEAVES)
        for _ in range(draw(st.integers(0, 3))):
            text = draw(AROUND).format("\n".join(f" {line}" for line in text.splitlines()))
        body.append(text)
    return "\n".join(body)


@pytest.mark.slow
@settings(max_examples=60)
@given(body=programs())
def test_whatever_a_script_does_only_zero_is_called_zero(body: str) -> None:
    known, code = ends(body)
    assert known in ("zero", "unknown")
    assert known == "unknown" or code == 0
