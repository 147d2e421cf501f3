"""``lint --fix``: what is mended, that nothing else changes, and commands as lint reads them."""

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.manifests.command import commands_of, faultrun_of, shell_of, stays
from faultrun.manifests.edits import after_line, first_entry, inside
from faultrun.manifests.lint import NotAManifest, lint, mend
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_tree import MappingNode, mapping, scalar, walk
from support.manifests import CLUSTER, FIELD, Case, cases, changed, rendered, rules

FIELD_CHANGES = (
    ("  name: reset-config-resnet-8p\n", '  name: reset-config-resnet-8p\n  labels:\n    reset: "true"\n'),
    ("terminationGracePeriodSeconds: 900     # long", "terminationGracePeriodSeconds: 810     # long"),
    ("chmod +x start.sh; ./start.sh;", "chmod +x start.sh; exec ./start.sh;"),
)


def test_the_field_s_manifest_is_mended_and_every_other_byte_stays() -> None:
    done = mend(FIELD, CLUSTER)
    expected = FIELD
    for old, new in FIELD_CHANGES:
        expected = changed(expected, old, new)
    assert done.text == expected
    assert sorted(one.rule for one in done.mended) == ["grace-over-time", "reset-label", "shell-pid-1"]
    assert done.left.findings == ()


def test_line_ends_of_windows_stay() -> None:
    windows = FIELD.replace("\n", "\r\n")
    assert mend(windows, CLUSTER).text == mend(FIELD, CLUSTER).text.replace("\n", "\r\n")


@pytest.mark.parametrize("case", cases("lint_mended.txt"), ids=lambda case: f"{case.head[0]} {case.texts[1]}")
def test_fix_writes_what_the_finding_says(case: Case) -> None:
    old, new, mended = case.texts
    done = mend(changed(rendered(*case.head), old, new), CLUSTER)
    expected = changed(rendered(*case.head), old, mended)
    if "360" in mended:  # the variable follows the period
        expected = re.sub(r'(GRACE_S.*\n.*value: )"600"', r'\1"360"', expected)
    assert done.text == expected
    assert done.left.findings == ()


def test_a_missing_variable_is_put_before_the_first() -> None:
    text = re.sub(r" +- name: FAULTRUN_TERMINATION.*\n.*\n", "", rendered("job"))
    done = mend(text, CLUSTER)
    assert done.left.findings == ()
    assert (
        '          env:\n            - name: FAULTRUN_TERMINATION_GRACE_S\n              value: "600"\n'
        "            - name: FAULTRUN_LOG_DIR"
    ) in done.text


def test_a_mended_manifest_is_not_mended_again() -> None:
    once = mend(FIELD, CLUSTER)
    twice = mend(once.text, CLUSTER)
    assert (twice.text, twice.mended) == (once.text, ())


def test_what_one_finding_hides_is_mended_in_the_next_round() -> None:
    done = mend(FIELD.replace('fault-scheduling: "grace"', 'fault-scheduling: "gentle"'), CLUSTER)
    assert done.text == mend(FIELD, CLUSTER).text
    assert [one.rule for one in done.mended].index("fault-scheduling") < len(done.mended) - 1
    assert done.mended[-1].rule == "shell-pid-1"


def test_a_key_without_a_value_is_not_given_a_second_time() -> None:
    text = changed(rendered("job", "nodes=3"), "subdomain: train", "subdomain:")
    done = mend(text, CLUSTER)
    assert done.text == text
    assert {one.rule for one in done.left.findings} == {"headless-service"}


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_mutilation_of_a_manifest_makes_lint_fail_or_fix_make_it_worse(data: st.DataObject) -> None:
    lines = FIELD.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "double", "cut", "indent", "word"])):
            case "drop":
                lines[at] = ""
            case "double":
                lines[at] *= 2
            case "cut":
                lines[at] = lines[at][: data.draw(st.integers(0, 20))] + "\n"
            case "indent":
                lines[at] = "  " + lines[at]
            case _:
                lines[at] = re.sub(
                    r"\w+",
                    data.draw(st.sampled_from(["null", "9", "[]", "{}", "'x'", "on"])),
                    lines[at],
                    count=1,
                )
    text = "".join(lines)
    try:
        before = lint(text, CLUSTER).findings
    except NotAManifest:
        return
    done = mend(text, CLUSTER)
    assert len(list(yaml.compose_all(done.text, yaml.SafeLoader))) == len(
        list(yaml.compose_all(text, yaml.SafeLoader))
    )
    assert {one.rule for one in done.left.findings} <= {one.rule for one in before} | {
        "pre-stop",
        "shell-pid-1",
    }
    assert _doubles(done.text) <= _doubles(text)
    kept = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    assert [line for line in done.text.splitlines() if line.lstrip().startswith("#")] == kept


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
def test_any_script_is_taken_apart_at_places_that_are_in_it(script: str) -> None:
    shell_of(("sh", "-c", script))
    for command in commands_of(script):
        assert script[command.start : command.start + 1] not in {" ", "\n", ";", ""}
    found = stays(("sh", "-c", script))
    if found is not None and found.exec_at is not None:
        assert 0 <= found.exec_at < len(script)


def test_entries_go_into_flow_mappings_too() -> None:
    text = "metadata: {labels: {a: b}, name: x}\n"
    labels = mapping(read(text).roots[0], "metadata", "labels")
    assert labels is not None
    patch = first_entry(text, labels, 'reset: "true"')
    assert patch is not None
    assert (
        text[: patch.start] + patch.new + text[patch.end :]
        == 'metadata: {labels: {reset: "true", a: b}, name: x}\n'
    )


def test_a_line_is_put_below_a_value_at_the_end_of_a_file_without_a_line_end() -> None:
    text = "metadata:\n  name: x"
    name = scalar(read(text).roots[0], "metadata", "name")
    assert name is not None
    patch = after_line(text, name, 2, "labels:\n  a: b")
    assert patch is not None
    assert text[: patch.start] + patch.new == "metadata:\n  name: x\n  labels:\n    a: b"


@pytest.mark.parametrize("written", ['"a\\tb; c"', "'a''b; c'", ">\n  a\n  b; c"])
def test_a_word_is_not_put_where_text_and_value_differ(written: str) -> None:
    text = f"x: {written}\n"
    value = scalar(read(text).roots[0], "x")
    assert value is not None
    assert inside(text, value, value.value.index("; c") + 2, "exec ") is None


def test_rules_of_a_rendered_manifest_hold_after_any_single_fix() -> None:
    assert rules(mend(changed(rendered("vcjob"), "Seconds: 600", "Seconds: 5000"), CLUSTER).text) == []


def _doubles(text: str) -> int:
    """How many keys are there twice."""
    nodes = (node for root in read(text).roots for node in walk(root))
    return sum(len(node.doubles) for node in nodes if isinstance(node, MappingNode))
