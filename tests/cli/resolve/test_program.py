"""SCRIPT and its arguments: what a worker executes, which framework it is, and what cannot be run."""

import sys
from pathlib import Path

import pytest

from faultrun.model.spec.run_spec import Framework
from support.asking import plan, refusal


def test_a_python_file_runs_with_our_python_and_unbuffered(script: str) -> None:
    command = plan(script, "--lr", "1").spec.command
    assert command.prefix == (sys.executable, "-u", script)
    assert command.script_args == ("--lr", "1")
    assert command.shown == f"{script} --lr 1"


@pytest.mark.parametrize(
    ("words", "prefix", "arguments"),
    [
        (["python", "{script}", "--lr", "1"], ("python", "{script}"), ("--lr", "1")),
        (
            ["python3", "-u", "-X", "dev", "{script}", "-c"],
            ("python3", "-u", "-X", "dev", "{script}"),
            ("-c",),
        ),
        (["python", "-um", "json.tool", "x"], ("python", "-um", "json.tool"), ("x",)),
        (["python", "-mjson.tool", "x"], ("python", "-mjson.tool"), ("x",)),
        (["python", "-c", "print()", "x"], ("python", "-c", "print()"), ("x",)),
        (["bash", "-x", "{script}", "a"], ("bash", "-x", "{script}"), ("a",)),
        (["bash", "-c", "echo $0", "a"], ("bash", "-c", "echo $0"), ("a",)),
        (["-m", "json.tool", "x"], (sys.executable, "-u", "-m", "json.tool"), ("x",)),
        (["sleep", "5"], ("sleep",), ("5",)),
        (["--no-python", "sleep", "5"], ("sleep",), ("5",)),
    ],
)
def test_interpreters_modules_and_commands_run_as_written(
    script: str, words: list[str], prefix: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    command = plan(*(word.format(script=script) for word in words)).spec.command
    assert command.prefix == tuple(word.format(script=script) for word in prefix)
    assert command.script_args == arguments


def test_an_executable_file_runs_as_written(tmp_path: Path) -> None:
    tool = tmp_path / "train"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert plan(str(tool), "x").spec.command.prefix == (str(tool),)


def test_nothing_to_run_is_said_with_an_example() -> None:
    error = refusal()
    assert (error.what, error.exit_code) == ("nothing to run", 64)
    assert "train.py" in error.hint


@pytest.mark.parametrize("words", [("python",), ("python3", "-u", "-"), ("bash",)])
def test_a_program_that_comes_by_standard_input_is_refused(words: tuple[str, ...]) -> None:
    error = refusal(*words)
    assert (error.exit_code, error.what) == (64, "nothing to run")
    assert "would read its program from standard input, which no worker has" in error.because


def test_a_missing_script_is_refused_with_the_file_that_was_meant(script: str, tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "tran.py")).hint == f"did you mean {script}?"
    for interpreter in ("python", "bash"):
        assert refusal(interpreter, str(tmp_path / "tran.py")).hint == f"did you mean {script}?"


def test_an_empty_word_is_no_script(script: str) -> None:
    for words in (("",), ("-m", ""), ("", script)):
        error = refusal(*words)
        assert (error.exit_code, error.what) == (64, "nothing to run")
        assert error.because.startswith("SCRIPT is an empty word")


def test_a_verb_in_the_wrong_place_is_refused_with_where_it_belongs() -> None:
    assert "must be the first word" in refusal("--log_dir=d", "status").hint


def test_a_folder_as_script_is_refused_with_a_script_in_it(tmp_path: Path, script: str) -> None:
    error = refusal(str(tmp_path))
    assert error.what == f"{tmp_path} is a directory"
    assert error.hint == script


def test_a_file_that_cannot_be_executed_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("")
    assert "is not executable" in refusal(str(text)).because
    assert "is not executable" in refusal("--no-python", str(text)).because


def test_a_missing_module_is_refused_and_so_is_a_module_without_python(script: str) -> None:
    assert refusal("-m", "no.such.module").what == "no module no.such.module to run"
    assert "one of -m and --no-python" in refusal("-m", "--no-python", "json.tool").hint


@pytest.mark.long
def test_the_framework_is_read_from_the_script_or_named(script: str, mindspore_script: str) -> None:
    assert plan(script).spec.framework is Framework.TORCH
    assert plan(mindspore_script).spec.framework is Framework.MINDSPORE
    assert plan("python", "-u", mindspore_script).spec.framework is Framework.MINDSPORE
    assert plan("--framework=plain", script).spec.framework is Framework.PLAIN
    assert "did you mean torch?" in refusal("--framework=torhc", script).because


def test_a_program_without_imports_to_read_is_plain_and_that_is_said() -> None:
    settled = plan("sleep", "1")
    assert settled.spec.framework is Framework.PLAIN
    assert any(
        note.startswith("no torch, MindSpore or TensorFlow import found; treating sleep 1 as plain")
        for note in settled.notes
    )


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.long
def test_pytest_and_shell_scripts_are_of_the_framework_of_what_they_run(
    tmp_path: Path, mindspore_script: str, script: str
) -> None:
    written(tmp_path, "test_ms.py", "from mindspore.communication import init\n")
    shell = written(
        tmp_path,
        "run.sh",
        "# python train.py\ncd $(dirname $0)\nfor i in 1; do python ${BASE}/train_ms.py --x=1 > log; done\n",
    )
    outer = written(tmp_path, "outer", "#!/usr/bin/env bash\nbash run.sh\n")
    Path(outer).chmod(0o755)
    for words in (
        ("pytest", f"{tmp_path}/test_ms.py::test_all_reduce"),
        ("pytest", "-x", str(tmp_path)),
        ("python", "-m", "pytest", f"{tmp_path}/test_ms.py"),
        ("bash", shell),
        ("sh", "-c", f"exec python {mindspore_script}"),
        (outer,),
    ):
        assert plan(*words).spec.framework is Framework.MINDSPORE, words
    assert (
        plan("bash", "-c", f"python {script} --config {tmp_path}/none.py").spec.framework is Framework.TORCH
    )
    assert plan("bash", "-c", "echo train.py").spec.framework is Framework.PLAIN


def test_an_option_that_only_msrun_has_means_mindspore_where_nothing_else_tells() -> None:
    settled = plan("--cluster_time_out=60", "sleep", "1")
    assert settled.spec.framework is Framework.MINDSPORE
    assert any("because --cluster_time_out is given" in note for note in settled.notes)
    assert plan("--cluster_time_out=60", "--framework=plain", "sleep", "1").spec.framework is Framework.PLAIN


def test_words_that_name_no_file_wrap_nothing(tmp_path: Path) -> None:
    """Too long for a name, a link to itself: words of a command may be anything."""
    (tmp_path / "loop.sh").symlink_to("loop.sh")
    for word in (str(tmp_path / "loop.sh"), "x" * 5000 + ".py", "a b.py", "nothing.sh"):
        assert plan("sleep", word).spec.framework is Framework.PLAIN
