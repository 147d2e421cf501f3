"""Where a setting comes from: command line over FAULTRUN_* over torchrun's PET_* over the config file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from faultrun.cli.options.option import Layer
from faultrun.errors import ConfigError, UsageError
from support.asking import refusal, settle

Config = Callable[[str | bytes], str]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    def write(content: str | bytes) -> str:
        path = tmp_path / "faultrun.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return f"--config={path}"

    return write


def test_each_layer_wins_over_the_ones_below(config: Config) -> None:
    file = config("max_restarts: 1\n")
    pet, own = {"PET_MAX_RESTARTS": "2"}, {"FAULTRUN_MAX_RESTARTS": "3"}
    expected = [
        (settle("s"), None),
        (settle(file, "s"), "1"),
        (settle(file, "s", environ=pet), "2"),
        (settle(file, "s", environ=pet | own), "3"),
        (settle(file, "--max_restarts=4", "s", environ=pet | own), "4"),
    ]
    for settings, text in expected:
        found = settings.given.get("max_restarts")
        assert (found.text if found else None) == text


def test_every_value_remembers_where_it_was_written(config: Config) -> None:
    file = config("# ours\ngrace: 10s\n\nbackoff: 2s..4s\n")
    given = settle(file, "--worker_num=2", "s", environ={"FAULTRUN_RESUME": "never"}).given
    assert (given["worker_num"].layer, given["worker_num"].where) == (Layer.COMMAND_LINE, "--worker_num")
    assert (given["resume"].layer, given["resume"].where) == (Layer.ENVIRONMENT, "FAULTRUN_RESUME")
    assert given["grace"].layer is Layer.CONFIG
    assert given["grace"].where.endswith("faultrun.yaml:2 grace")
    assert given["backoff"].where.endswith("faultrun.yaml:4 backoff")


def test_the_config_file_may_be_named_by_its_variable(config: Config) -> None:
    path = config("worker-num: 7\n").removeprefix("--config=")
    assert settle("s", environ={"FAULTRUN_CONFIG": path}).worker_num == 7


def test_scalars_of_the_config_file_stay_as_they_are_written(config: Config) -> None:
    given = settle(config("run_id: 2024-01-01\nlog_dir: 0o17\njoin: no\nmaster_port: 0010\n"), "s").given
    assert [given[name].text for name in ("run_id", "log_dir", "join", "master_port")] == [
        "2024-01-01",
        "0o17",
        "no",
        "0010",
    ]


def test_lists_and_nulls_and_mappings_of_the_config_file_mean_what_yaml_means(config: Config) -> None:
    content = (
        'checkpoint_dir: [a, b]\nresume_arg: --x\ngrace:\nstop_grace: ~\nbind_core: {device0: ["0-1"]}\n'
    )
    given = settle(config(content), "s").given
    assert given["checkpoint_dir"].texts == ("a", "b")
    assert given["resume_arg"].texts == ("--x",)
    assert "grace" not in given
    assert "stop_grace" not in given
    assert given["bind_core"].text == '{"device0": ["0-1"]}'


def test_a_list_from_above_replaces_the_list_below(config: Config) -> None:
    file = config("checkpoint_dir: [a, b]\n")
    assert settle(file, "s", environ={"FAULTRUN_CHECKPOINT_DIR": "c;d\ne"}).given["checkpoint_dir"].texts == (
        "c",
        "d",
        "e",
    )
    assert settle(file, "--checkpoint_dir=f", "s").given["checkpoint_dir"].texts == ("f",)


def test_an_empty_variable_and_an_empty_file_say_nothing(config: Config) -> None:
    assert settle(config(""), "s", environ={"FAULTRUN_GRACE": " "}).given.keys() == {"config"}


@pytest.mark.parametrize(
    ("content", "because"),
    [
        ("a: b: c\n", "mapping values are not allowed here"),
        ("- worker_num\n", "it is a sequence, not a mapping"),
        ("just words\n", "it is a scalar, not a mapping"),
        ("worker_num: 1\n---\nworker_num: 2\n", "expected a single document"),
        (b"grace: \xff\n", "invalid start byte"),
        (b"grace: \x00\n", "special characters are not allowed"),
        ("worker_num: [1, [2]]\n", "its list holds a sequence"),
        ("{}: 1\n", "its key is a mapping"),
        ("bind_core: &a\n  device0: *a\n", "it nests deeper than"),
        ("worker_num: [4]\n", "it takes one value and was given a sequence"),
        ("log_dir: {a: b}\n", "it takes one value and was given a mapping"),
        ("worker_num: 1\nworker-num: 2\n", "it was already set at"),
        ("x" * (1 << 20) + "\n", "it is larger than 1 MiB"),
    ],
)
def test_a_config_file_without_sense_is_refused(config: Config, content: str | bytes, because: str) -> None:
    error = refusal(config(content), "s")
    assert isinstance(error, ConfigError)
    assert because in error.because


def test_a_config_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    error = refusal(f"--config={tmp_path}/none.yaml", "s")
    assert error.exit_code == 78
    assert error.because == "No such file or directory"


def test_an_unknown_key_is_answered_with_its_line_and_the_key_that_was_meant(config: Config) -> None:
    error = refusal(config("grace: 1s\nmax_restart: 3\n"), "s")
    assert isinstance(error, ConfigError)
    assert error.what.endswith("faultrun.yaml:2 max_restart is no option")
    assert error.hint == "did you mean max_restarts?"


def test_a_config_file_cannot_name_another(config: Config) -> None:
    assert "is no option" in refusal(config("config: b.yaml\n"), "s").what


def test_a_wrong_value_blames_the_layer_that_wrote_it(config: Config, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    in_file = refusal(config("worker_num: four\n"), str(script))
    assert isinstance(in_file, ConfigError)
    assert in_file.what.endswith("faultrun.yaml:1 worker_num: four cannot be used")
    assert in_file.hint == "worker_num: 4"
    in_variable = refusal(str(script), environ={"FAULTRUN_WORKER_NUM": "four"})
    assert isinstance(in_variable, UsageError)
    assert in_variable.what == "FAULTRUN_WORKER_NUM=four cannot be used"
    assert in_variable.hint == "FAULTRUN_WORKER_NUM=4"
    typed = refusal("--worker_num=four", str(script))
    assert isinstance(typed, UsageError)
    assert typed.what == "--worker_num=four cannot be used"
    assert typed.hint == "--worker_num=4"


def test_the_variables_of_a_worker_are_no_wishes_of_a_run_inside_it() -> None:
    worker = {"FAULTRUN_RUN_ID": "outer", "FAULTRUN_INCARNATION": "2", "FAULTRUN_GRACE_S": "30"}
    settings = settle("s", environ=worker)
    assert settings.given == {}
    assert settings.notes == ()
    assert settle("s", environ={"FAULTRUN_RUN_ID": "mine"}).given["run_id"].text == "mine"


def test_kubernetes_service_links_are_not_taken_for_options() -> None:
    link = {"FAULTRUN_MASTER_PORT": "tcp://10.0.0.1:8118", "FAULTRUN_MASTER_SERVICE_HOST": "10.0.0.1"}
    assert settle("s", environ=link).given == {}


def test_a_misspelled_variable_is_pointed_out() -> None:
    notes = settle("s", environ={"FAULTRUN_MAX_RESTART": "5", "FAULTRUN_OTHER_THING": "x"}).notes
    assert notes == ("FAULTRUN_MAX_RESTART has no effect here: did you mean FAULTRUN_MAX_RESTARTS?",)


@pytest.mark.parametrize(
    ("option", "value", "because"),
    [
        ("rewrite", "nope", "'nope' does not say what to set: the form is FILE:KEY, or FILE:KEY=TEMPLATE"),
        ("rewrite", "no.yaml:key", "no.yaml is not there: values are put into files that exist"),
        (
            "resume_arg",
            "{checkpoint}",
            "'{checkpoint}' is not a script option: it starts neither with a dash",
        ),
        ("resume_arg", "--to={checkpoint}", "faultrun looks for checkpoints only in the folders"),
    ],
)
def test_where_to_resume_blames_the_layer_that_wrote_it(
    config: Config, tmp_path: Path, option: str, value: str, because: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    in_file = refusal(config(f"{option}: '{value}'\n"), str(script))
    assert isinstance(in_file, ConfigError)
    assert in_file.what.endswith(f"faultrun.yaml:1 {option}: {value} cannot be used")
    typed = refusal(f"--{option}={value}", str(script))
    assert isinstance(typed, UsageError)
    assert typed.what == f"--{option}={value} cannot be used"
    assert in_file.because == typed.because
    assert typed.because.startswith(because)
