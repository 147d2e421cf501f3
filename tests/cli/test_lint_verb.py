"""``faultrun lint`` and ``faultrun render`` as a person types them: output, files, exit codes."""

import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from faultrun.cli.manifests import lint, render
from faultrun.errors import FaultrunError, UsageError
from support.machine.scripts import faultrun
from support.manifests import FIELD, rendered
from support.places import GOLDEN


def run_lint(*words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(lint, words, input=stdin, standalone_mode=False)


def run_render(*words: str) -> Result:
    return CliRunner().invoke(render, words, standalone_mode=False)


def saved(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


CHECKED = "faultrun: checked: what faultrun and MindCluster need"
REST = "; kubeconform and kube-linter check the rest\n"


def test_a_clean_manifest_has_no_finding_and_ends_with_0(tmp_path: Path) -> None:
    told = run_lint(saved(tmp_path / "job.yaml", rendered("vcjob")))
    assert (told.return_value, told.stdout, told.stderr) == (0, "", CHECKED + REST)


def test_the_kinds_that_are_not_checked_are_said_once_for_all_files(tmp_path: Path) -> None:
    others = "".join(f"---\napiVersion: v1\nkind: {kind}\n" for kind in ("Secret", "Service", "Secret"))
    files = [saved(tmp_path / name, rendered("job") + others) for name in ("a.yaml", "b.yaml")]
    told = run_lint(*files)
    assert (told.return_value, told.stdout) == (0, "")
    assert told.stderr == f"{CHECKED}; not checked: Secret, Service{REST}"


def test_a_finding_is_a_line_with_file_line_and_rule_and_ends_with_1(tmp_path: Path) -> None:
    file = saved(tmp_path / "job.yaml", FIELD)
    told = run_lint(file)
    assert told.return_value == 1
    agreed = (GOLDEN / "lint_field.txt").read_text(encoding="utf-8")
    assert told.stdout == agreed.replace("vcjob.yaml", file)
    assert all(line.count(" · ") == 2 for line in told.stdout.splitlines())


def test_the_cluster_s_grace_over_time_can_be_said(tmp_path: Path) -> None:
    file = saved(tmp_path / "job.yaml", FIELD)
    assert "grace-over-time" not in run_lint("--grace-over-time=1200", file).stdout


@pytest.mark.parametrize(
    ("content", "because"),
    [(b"a: 1\n", "apiVersion"), (b"\xff\xfe", "UTF-8"), (b"a: [\n", "not YAML"), (b"", "no object")],
)
def test_what_is_no_manifest_ends_with_65(tmp_path: Path, content: bytes, because: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_bytes(content)
    told = run_lint(str(file))
    assert told.return_value == 65
    assert because in told.stderr
    assert str(file) in told.stderr
    assert CHECKED not in told.stderr


def test_a_folder_is_no_manifest_and_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    assert run_lint(str(tmp_path)).return_value == 65
    assert isinstance(run_lint(str(tmp_path / "none")).exception, UsageError)


def test_the_other_files_are_checked_all_the_same(tmp_path: Path) -> None:
    wrong, bad = saved(tmp_path / "a.yaml", "a: 1\n"), saved(tmp_path / "b.yaml", FIELD)
    told = run_lint(wrong, bad)
    assert told.return_value == 65
    assert "b.yaml:56: grace-over-time" in told.stdout


def test_standard_input_is_named_by_a_dash() -> None:
    told = run_lint("-", stdin=FIELD.encode())
    assert told.return_value == 1
    assert told.stdout.startswith("-:17: reset-label")


def test_render_without_a_name_lists_the_templates() -> None:
    told = run_render()
    named = ["Dockerfile", "ascendjob", "job", "jobset", "slurm", "vcjob"]
    assert [line.split()[0] for line in told.output.splitlines()] == named


def test_render_writes_to_standard_output_or_to_a_file_of_its_own(tmp_path: Path) -> None:
    words = ["job", "--set", "image=a:1", "-f", saved(tmp_path / "v.yaml", "devices: 2\n")]
    shown = run_render(*words)
    (job,) = yaml.safe_load_all(shown.output)
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    target = tmp_path / "job.yaml"
    for _ in range(2):
        assert run_render(*words, "-o", str(target)).return_value == 0
    assert target.read_text() == shown.output
    saved(target, "mine: true\n")
    assert isinstance(run_render(*words, "-o", str(target)).exception, UsageError)
    assert target.read_text() == "mine: true\n"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["vcjop"], "there is no template 'vcjop'"),
        (["vcjob"], "vcjob needs image"),
        (["vcjob", "--set", "image"], "--set image cannot be used"),
        (["vcjob", "--set", "imag=a"], "--set imag=a cannot be used"),
        (["vcjob", "-f", "/nowhere/v.yaml"], "cannot read the values of /nowhere/v.yaml"),
        (["job", "--set", "image=a", "-o", "/nowhere/x"], "/nowhere/x could not be written"),
    ],
)
def test_a_mistake_is_said_in_three_lines(words: list[str], what: str) -> None:
    error = run_render(*words).exception
    assert isinstance(error, FaultrunError)
    assert error.what == what
    assert error.because and error.hint


def test_list_explains_the_values() -> None:
    told = run_render("slurm", "--list")
    assert "# SLURM's partition.\n# partition:\n" in told.output
    assert yaml.safe_load(told.output) is None
    assert "image: # must be given" in run_render("job", "--list").output


@pytest.mark.slow
def test_the_installed_command_renders_what_it_lints_clean(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("FAULTRUN_")}
    manifest = faultrun("render", "vcjob", "--set", "image=a:1", environ=environ).stdout
    for text, code in ((manifest, 0), (manifest.replace("Seconds: 600", "Seconds: 900"), 1), ("a: 1", 65)):
        done = faultrun("lint", "-", environ=environ, stdin=text, cwd=tmp_path)
        assert done.returncode == code
        assert ("grace-over-time" in done.stdout) is (code == 1)
        assert "Traceback" not in done.stderr
