"""Commands as lint reads them: shells that stay, and faultrun's own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.manifests.command import commands_of, faultrun_of, shell_of, stays


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (("bash", "-c", "a; b c"), "b"),
        (("/bin/bash", "-c", "cd x && ./b.sh;"), "./b.sh"),
        (("bash", "-lc", "a\nb"), "b"),
        (("bash", "-o", "pipefail", "-c", "a;b"), "b"),
        (("sh", "-c", "a"), "a"),
        (("sh", "-ec", "a # comment; b"), "a"),
        (("bash", "-c", "a > log"), "a"),
        (("bash", "-c", "a | b"), ""),
        (("bash", "-c", "for i in 1 2; do a; done"), "done"),
        (("bash", "-c", "a & wait"), ""),
        (("bash", "-c", "A=1 b; C=2 d"), "C=2"),
        (("bash", "-c", "echo 'exec x'; b"), "b"),
        (("bash", "-c", 'echo "a; exec b"; c'), "c"),
    ],
)
def test_a_shell_that_stays(words: tuple[str, ...], last: str) -> None:
    found = stays(words)
    assert found is not None
    assert found.last == last


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("python", "train.py"),
        ("bash", "train.sh"),
        ("bash",),
        ("bash", "-c"),
        ("bash", "-c", ""),
        ("bash", "-c", "a"),
        ("bash", "-c", "a; exec b"),
        ("sh", "-c", "exec a"),
        ("sh", "-c", "if x; then exec a; else exec b; fi"),
        ("bash", "-c", "trap 'kill $p' TERM; a & p=$!; wait"),
        ("bash", "-c", 'a "unclosed'),
        ("tini", "--", "bash", "-c", "a; b"),
    ],
)
def test_a_shell_that_does_not_stay_or_of_which_nothing_is_known(words: tuple[str, ...]) -> None:
    assert stays(words) is None


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (("faultrun", "--a", "t.py"), ("--a", "t.py")),
        (("/usr/bin/faultrun",), ()),
        (("python3.11", "-m", "faultrun", "run"), ("run",)),
        (("tini", "-g", "--", "faultrun", "x"), ("x",)),
        (("env", "--block-signal=TERM", "A=b", "faultrun", "x"), ("x",)),
        (("env", "true"), None),
        (("bash", "-c", "cd /job; exec faultrun --tee=3 'a b.py'"), ("--tee=3", "a b.py")),
        (("sh", "-c", "A=1 faultrun \\\n  t.py # yes"), ("t.py",)),
        (("sh", "-c", "faultrun $OPTIONS t.py"), None),
        (("python", "train.py"), None),
        (("bash", "-c", "echo faultrun"), None),
        ((), None),
    ],
)
def test_faultrun_is_found_with_its_own_words(words: tuple[str, ...], own: tuple[str, ...] | None) -> None:
    assert faultrun_of(words) == own


@given(script=st.text(st.sampled_from("ab ;&\n'\"\\#$|"), max_size=30))
def test_any_script_is_taken_apart_into_commands_with_words(script: str) -> None:
    shell_of(("sh", "-c", script))
    stays(("sh", "-c", script))
    assert all(commands_of(script))
