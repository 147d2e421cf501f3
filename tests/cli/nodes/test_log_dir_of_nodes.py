"""Verbs that are given, or assume, the log_dir which several nodes were given: each has a folder below it."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faultrun.cli.verbs import verb_command
from faultrun.model.topology import NodeId, node_folder
from faultrun.platforms.this_machine import hostname


def _with_a_card(log_dir: Path, node: str) -> Path:
    folder = log_dir / node_folder(NodeId(node))
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "incident_1.txt").write_text(f"incident 1, as node {node} has it\n")
    return folder


def _asked(verb: str, log_dir: Path) -> Result:
    return CliRunner().invoke(verb_command(verb), [f"--log_dir={log_dir}"], standalone_mode=False)


@pytest.mark.parametrize("others", [(), ("a", "b")])
def test_of_a_log_dir_that_nodes_share_each_means_its_own(tmp_path: Path, others: tuple[str, ...]) -> None:
    for node in (hostname(), *others):
        _with_a_card(tmp_path, node)
    assert _asked("incident", tmp_path).stdout == f"incident 1, as node {hostname()} has it\n"


def test_the_only_node_of_a_log_dir_is_meant_whatever_its_name(tmp_path: Path) -> None:
    _with_a_card(tmp_path, "a")
    assert _asked("incident", tmp_path).stdout == "incident 1, as node a has it\n"


@pytest.mark.parametrize("verb", ["incident", "status", "report", "logs", "stop", "checkpoint-now"])
def test_where_nobody_can_tell_which_node_is_meant_their_folders_are_named(tmp_path: Path, verb: str) -> None:
    folders = [_with_a_card(tmp_path, node) for node in ("a", "b")]
    refused = _asked(verb, tmp_path).exception
    assert f"--log_dir={folders[0]} or --log_dir={folders[1]}" in getattr(refused, "hint", "")
    assert "nothing failed" not in getattr(refused, "because", "")


def test_a_run_that_lies_there_itself_is_meant(tmp_path: Path) -> None:
    _with_a_card(tmp_path, hostname())
    (tmp_path / "run.json").write_text("{}")
    refused = _asked("incident", tmp_path).exception
    assert getattr(refused, "because", "") == "nothing failed there yet"
