"""A standby that became a worker, held against a fresh worker; and one that does not become one."""

import json
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faultrun.frameworks.standby_eligibility import program_at
from faultrun.model.exits import Exited
from faultrun.workers.standby import PROBED, Listener, probe
from support.machine.processes import wait_until
from support.machine.standby_stage import PATIENCE_S, Stage, hears, ready, status_of
from support.places import TESTS

SCRIPT = TESTS / "support" / "machine" / "worker_properties.py"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def differences(fresh: Any, other: Any, where: str = "") -> list[str]:
    """Paths of everything that is not the same."""
    if isinstance(fresh, dict) and isinstance(other, dict):
        return [
            line
            for key in sorted(fresh.keys() | other.keys())
            for line in differences(fresh.get(key), other.get(key), f"{where}/{key}")
        ]
    return [] if fresh == other else [f"{where}: fresh {fresh!r}, standby {other!r}"]


def compared(stage: Stage, program: tuple[str, ...], framework: str, *imports: str) -> list[str]:
    """Run the program once fresh and once in a standby that had another rank's words before."""
    now = {"RANK": "1", "MASTER_PORT": "2", "FAULTRUN_INCARNATION": "3"}
    launch = stage.launch(*program, "result.json", *imports, **now)
    stage.runs(launch)
    fresh = json.loads((stage.folder / "result.json").read_text())
    before = stage.launch(*program, "result.json", *imports, RANK="0", MASTER_PORT="1", OLD="gone")
    standby = ready(stage, before, framework)
    standby.look_alive()
    assert hears(standby) == {"kind": "here"}
    (stage.folder / "result.json").unlink()
    (stage.folder / "out").unlink()
    assert standby.hand_over(launch, launch.argv[2 + len(program) :], None)
    assert hears(standby) == {"kind": "taken"}
    assert status_of(standby.process) == Exited(code=0)
    handed = json.loads((stage.folder / "result.json").read_text())
    assert (stage.folder / "out").read_text() == "written\nto descriptor 2\n", (
        "both streams, and nothing else"
    )
    assert not set(fresh["chance"]) & set(handed["chance"]), "two processes, two fates"
    standby.close()
    return differences(
        {"early": fresh["early"], "late": fresh["late"]}, {"early": handed["early"], "late": handed["late"]}
    )


@pytest.mark.long
@pytest.mark.parametrize("program", [(str(SCRIPT),), ("-m", "worker_properties")])
def test_python_alone_is_like_a_fresh_worker_in_all_ways(stage: Stage, program: tuple[str, ...]) -> None:
    assert compared(stage, program, "plain") == []


@pytest.mark.slow
@pytest.mark.torch
def test_torch_rehearsed_is_like_a_fresh_worker_that_has_imported_it(stage: Stage) -> None:
    # A fresh worker has all of this as soon as it has imported torch and made its first optimizer.
    known_before = (
        "/early/kernel/threads",
        "/early/kernel/signals/SigCgt",
        "/early/python/exit callbacks",
        "/early/python/filters",
        "/early/python/environment/TORCHINDUCTOR_CACHE_DIR",
        "/early/python/inherited by children",
    )
    found = compared(stage, (str(SCRIPT),), "torch", "torch", "torch.distributed")
    assert [line for line in found if not line.startswith(known_before)] == []


@pytest.mark.slow
@pytest.mark.mindspore
def test_mindspore_compiled_for_nobody_trains_to_the_bits_of_a_fresh_worker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOG_v", "3")  # its warnings carry the time
    # A fresh worker has these as soon as it has imported MindSpore, the thread with its first graph;
    # what the collector passes over stays.
    known_before = (
        *("/early/kernel/signals/SigCgt", "/early/kernel/threads", "/early/python/collector"),
        *("/early/python/environment", "/early/python/exit callbacks", "/early/python/filters"),
        *("/early/python/inherited by children", "/early/python/meta_path", "/early/python/recursion"),
    )
    found = compared(stage, (str(SCRIPT),), "mindspore", "mindspore", "mindspore.communication")
    assert [line for line in found if not line.startswith(known_before)] == []


def test_the_arguments_are_those_of_the_hand_over(stage: Stage) -> None:
    script = stage.folder / "arguments.py"
    script.write_text("import sys\nprint(sys.argv[1:], sys.orig_argv[-1])")
    standby = ready(stage, stage.launch(str(script), "--from=old", "x"))
    assert standby.hand_over(stage.launch(str(script), "--from=new"), ("--from=new",), None)
    status_of(standby.process)
    assert (stage.folder / "out").read_text() == "['--from=new'] --from=new\n"


def test_rank_0_of_another_machine_is_asked_whether_it_listens_and_not_for_long(stage: Stage) -> None:
    script = stage.folder / "meets.py"
    script.write_text("print('began')")
    with socket.create_server(("127.0.0.1", 0)) as rank_0:
        there = Listener(address="127.0.0.1", port=rank_0.getsockname()[1])
        asking = ready(stage, stage.launch(str(script)))
        assert asking.hand_over(asking.launch, (), there)
        rank_0.settimeout(PATIENCE_S)
        with rank_0.accept()[0] as asked:
            asked.settimeout(PATIENCE_S)
            assert asked.recv(1) == b""
        assert status_of(asking.process) == Exited(code=0)
    alone = ready(stage, stage.launch(str(script)))
    assert alone.hand_over(alone.launch, (), there)
    assert status_of(alone.process) == Exited(code=0)


def test_the_program_is_not_even_read_before_its_turn(stage: Stage) -> None:
    script = stage.folder / "late.py"
    script.write_text("this is no Python")
    launch = stage.launch(str(script))
    standby = ready(stage, launch)
    script.write_text("raise SystemExit(7)")
    assert standby.hand_over(launch, (), None)
    assert status_of(standby.process) == Exited(code=7)


def test_a_sitecustomize_of_the_user_runs_as_it_would(stage: Stage) -> None:
    (stage.folder / "sitecustomize.py").write_text("print('customized')")
    launch = stage.launch(
        "-c", "import sitecustomize; print(sitecustomize.__file__)", PYTHONPATH=str(stage.folder)
    )
    standby = ready(stage, launch)
    assert standby.hand_over(launch, (), None)
    status_of(standby.process)
    assert (stage.folder / "out").read_text() == f"customized\n{stage.folder}/sitecustomize.py\n"


def test_a_module_of_the_program_that_a_fresh_worker_would_have_found_first_forbids_it(stage: Stage) -> None:
    (stage.folder / "json.py").write_text("")
    script = stage.folder / "train.py"
    script.write_text("print('never')")
    standby = stage.standby(stage.launch(str(script)), "plain")
    said = hears(standby)
    assert said["kind"] == "refuse"
    assert "json" in said["why"]
    assert status_of(standby.process) == Exited(code=0)
    assert not (stage.folder / "out").exists()


def test_a_framework_that_cannot_be_imported_is_refused_with_the_reason(stage: Stage) -> None:
    (stage.folder / "mods" / "torch").mkdir(parents=True)
    (stage.folder / "mods" / "torch" / "__init__.py").write_text("raise ImportError('no libfabric.so')")
    launch = stage.launch("-c", "print('never')", PYTHONPATH=str(stage.folder / "mods"))
    said = hears(stage.standby(launch, "torch"))
    assert (said["kind"], said["why"]) == ("refuse", "torch cannot be imported: no libfabric.so")


def test_when_nobody_is_left_to_give_it_a_rank_it_ends_without_a_word(stage: Stage) -> None:
    standby = ready(stage, stage.launch("-c", "print('never')"))
    standby.close()
    assert status_of(standby.process) == Exited(code=0)
    assert not (stage.folder / "out").exists()


def test_one_that_is_stopped_gets_no_rank(stage: Stage) -> None:
    launch = stage.launch("-c", "print('never')")
    standby = ready(stage, launch)
    standby.process.signal_leader(signal.SIGSTOP)
    stat = Path(f"/proc/{standby.process.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="the stop")
    assert not standby.hand_over(launch, (), None)


@pytest.mark.parametrize(
    ("options", "code"), [(("-u",), PROBED), (("-u", "-E"), 0), (("-S",), 0), (("-I",), 0)]
)
def test_a_probe_tells_if_python_comes_to_the_hook(stage: Stage, options: tuple[str, ...], code: int) -> None:
    launch = replace(stage.launch(), argv=(sys.executable, *options, "train.py"))
    process = probe(launch, stage.folder / "probe.log", program_at=1 + len(options))
    stage.processes.append(process)
    assert status_of(process) == Exited(code=code)


@pytest.mark.parametrize(
    ("argv", "at"),
    [
        ("python -u train.py --lr 1", 2),
        ("/opt/bin/python3.11 -W ignore -X dev -m pkg", 5),
        ("python -Wignore -OO -c pass", 3),
        *(("python -u", 0), ("python -E train.py", 0), ("python -uI train.py", 0)),
        *(("python -S train.py", 0), ("python -i train.py", 0)),
        *(("bash run.sh", 0), ("./train", 0), ("", 0)),
    ],
)
def test_where_the_program_begins_in_a_command_that_a_standby_can_wait_in(argv: str, at: int) -> None:
    assert program_at(argv.split()) == at
