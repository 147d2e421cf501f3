"""A plan applied to this node: real configurations rewritten, real ports taken."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from faultrun.errors import ConfigError
from faultrun.model.checkpoint import Kind, RankFile, RecoveryPoint
from faultrun.model.events import ConfigRewritten, Event, FirstStep, Prepared, PrepareFailed, RunFinished
from faultrun.model.plan import Plan, Reason
from faultrun.model.run import Phase, Step
from faultrun.model.spec.run_spec import Command, Pointer, Recovery, Rendezvous, Rewrite, RunSpec
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.platforms.ports import fresh_port
from faultrun.supervisor.launch.devices import DeviceAssignment
from faultrun.supervisor.launch.prepare import Preparer
from faultrun.supervisor.reactor import RunClock
from support.machine.small_disk import fill, small_disk
from support.stories.specs import a_spec
from support.stories.story import checkpoint, first_plan, in_phase

CONFIG = 'epochs: 9  # all of them\npre_trained: ""\n'


@dataclass(slots=True)
class Bench:
    """A preparer and what it says; the user's script takes ``--lr=1 --resume=no``."""

    preparer: Preparer
    said: list[str] = field(default_factory=list)

    def events(self, plan: Plan) -> list[Event]:
        return list(self.preparer.prepare(plan, 0.0))

    def port(self, plan: Plan) -> int:
        prepared = self.events(plan)[-1]
        assert isinstance(prepared, Prepared), prepared
        return prepared.master_port

    def failure(self, plan: Plan) -> PrepareFailed:
        (failed,) = self.events(replace(plan, incarnation=0))
        assert isinstance(failed, PrepareFailed)
        return failed


def bench(
    folder: Path, environ: Mapping[str, str] | None = None, said: list[str] | None = None, **more: object
) -> Bench:
    spec: RunSpec = replace(
        a_spec(workers=2),
        command=Command(prefix=("train",), script_args=("--lr=1", "--resume=no"), shown="train"),
        **more,  # type: ignore[arg-type]
    )
    said = [] if said is None else said
    devices = DeviceAssignment(spec, environ or {}, said.append, folder)
    preparer = Preparer(spec, environ or {}, folder / "original", RunClock(), said.append, devices)
    return Bench(preparer, said)


def plan(point: RecoveryPoint | None = None, incarnation: int = 1) -> Plan:
    return first_plan(2, incarnation=incarnation, reason=Reason.FAULT, point=point)


def rewriting(config: Path) -> Recovery:
    return Recovery(checkpoint_dirs=("ckpt",), rewrites=(Rewrite(file=str(config), key="pre_trained"),))


def test_the_configuration_names_the_recovery_point_and_is_otherwise_untouched(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    events = bench(tmp_path, recovery=rewriting(config)).events(plan(checkpoint(5, "/ckpt/5.ckpt")))
    assert config.read_text() == CONFIG.replace('""', '"/ckpt/5.ckpt"')
    rewritten, prepared = events
    assert isinstance(rewritten, ConfigRewritten)
    assert (rewritten.file, rewritten.key, rewritten.incarnation) == (str(config), "pre_trained", 1)
    assert "/ckpt/5.ckpt" in rewritten.after
    assert isinstance(prepared, Prepared)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("global_step5", Kind.PERIODIC, "global_step5"),
        ("gasp-step_6", Kind.GASP, "global_step9"),
        ("model.pt", Kind.PERIODIC, "global_step9"),
    ],
)
def test_a_pointer_of_the_training_code_names_a_folder_that_the_code_wrote(
    tmp_path: Path, name: str, kind: Kind, expected: str
) -> None:
    latest = tmp_path / "latest"
    latest.write_text("global_step9")
    path = tmp_path / name
    path.touch() if "." in name else path.mkdir()
    recovery = Recovery(
        checkpoint_dirs=("ckpt",), pointers=(Pointer(name="latest", template="{checkpoint_name}"),)
    )
    events = bench(tmp_path, recovery=recovery).events(plan(replace(checkpoint(5, str(path)), kind=kind)))
    assert latest.read_text() == expected
    assert [event.after for event in events if isinstance(event, ConfigRewritten)] == [
        expected for _ in events[1:]
    ]


@pytest.mark.parametrize("saved", [None, "epochs: [9\npre_tr"])
def test_a_configuration_that_is_away_or_half_saved_at_a_restart_is_looked_at_again(
    tmp_path: Path, saved: str | None
) -> None:
    config = tmp_path / "config.yaml"
    if saved is not None:
        config.write_text(saved)

    class Saved(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            config.write_text(CONFIG)

    used = bench(tmp_path, said=Saved(), recovery=rewriting(config))
    assert isinstance(used.events(plan(checkpoint(5, "/ckpt/5.ckpt")))[-1], Prepared)
    assert "/ckpt/5.ckpt" in config.read_text()
    (said,) = used.said
    assert said.startswith("not ready to go on, looking again for 60 s: ")


def test_with_nothing_to_resume_from_the_original_is_there_again(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    used = bench(tmp_path, recovery=rewriting(config))
    used.events(plan(checkpoint(5)))
    used.events(plan(None, 2))
    assert config.read_text() == CONFIG


def test_a_configuration_that_went_away_ends_the_run_with_78_in_three_lines(tmp_path: Path) -> None:
    failed = bench(tmp_path, recovery=rewriting(tmp_path / "gone.yaml")).failure(plan(checkpoint(5)))
    assert (failed.exit_code, failed.incarnation) == (ConfigError.exit_code, 0)
    assert len(failed.why.splitlines()) == 3


def test_a_configuration_for_which_the_disk_is_too_full_is_this_nodes_failure_alone(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        config = disk / "train.yaml"
        config.write_text(CONFIG)
        used = bench(disk, recovery=rewriting(config))
        fill(disk)
        failed = used.failure(plan(checkpoint(5)))
        assert (failed.unfit, config.read_text()) == (True, CONFIG)
        assert "No space left on device" in failed.why
    assert not bench(tmp_path, recovery=rewriting(tmp_path / "gone.yaml")).failure(plan(checkpoint(5))).unfit


def test_script_arguments_are_replaced_or_appended_only_where_a_point_is(tmp_path: Path) -> None:
    recovery = Recovery(
        checkpoint_dirs=("ckpt",), resume_args=("--resume={checkpoint}", "--from_step={global_step}")
    )
    used = bench(tmp_path, recovery=recovery)
    assert used.preparer.command(plan(None), 0).args == ("--lr=1", "--resume=no")
    resumed = used.preparer.command(plan(checkpoint(5, "/ckpt/5.ckpt")), 0)
    assert resumed.args == ("--lr=1", "--resume=/ckpt/5.ckpt", "--from_step=5")


def test_each_rank_is_pointed_at_the_file_that_is_its_own(tmp_path: Path) -> None:
    files = tuple(RankFile(rank=rank, path=f"/ckpt/rank_{rank}.ckpt") for rank in range(2))
    used = bench(
        tmp_path, recovery=Recovery(checkpoint_dirs=("ckpt",), resume_args=("--resume={checkpoint}",))
    )
    point = replace(checkpoint(5), files=files)
    found = [used.preparer.command(plan(point), rank).args[-1] for rank in range(2)]
    assert found == ["--resume=/ckpt/rank_0.ckpt", "--resume=/ckpt/rank_1.ckpt"]


def of_two_nodes(folder: Path) -> Plan:
    """This node has ranks 2 and 3, each with a file of its own in ``folder``."""
    files = tuple(RankFile(rank=rank, path=str(folder / f"rank_{rank}")) for rank in range(4))
    seats = (NodeSlots(node=NodeId("other"), slots=2), NodeSlots(node=a_spec(workers=2).node, slots=2))
    return replace(plan(replace(checkpoint(5), files=files)), topology=Topology(nodes=seats))


def of_several(folder: Path, recovery: Recovery | None = None, **meets: object) -> Bench:
    """A preparer of one of two nodes, which has prepared an incarnation."""
    (folder / "rank_2").touch()
    (folder / "rank_3").touch()
    recovery = recovery or Recovery(checkpoint_dirs=("ckpt",))
    seats = of_two_nodes(folder).topology
    used = bench(folder, recovery=recovery, topology=seats, rendezvous=Rendezvous(**meets))  # type: ignore[arg-type]
    used.port(of_two_nodes(folder))
    return used


def test_the_port_that_was_told_before_the_plan_is_the_one_that_it_gets(tmp_path: Path) -> None:
    used = of_several(tmp_path)
    told = used.preparer.open_port()
    assert told
    assert used.port(of_two_nodes(tmp_path)) == told
    told = used.preparer.open_port()
    with socket.create_server(("127.0.0.1", told)):
        assert used.port(of_two_nodes(tmp_path)) not in (0, told)


@pytest.mark.parametrize("needs", ["a file to rewrite", "a rank table", "one port", "no other node"])
def test_who_has_to_prepare_more_than_a_port_tells_none(tmp_path: Path, needs: str) -> None:
    recovery = rewriting(tmp_path / "config.yaml") if needs == "a file to rewrite" else None
    (tmp_path / "config.yaml").write_text(CONFIG)
    meets: dict[str, object] = {"rank_table_file": "/table.json"} if needs == "a rank table" else {}
    if needs == "one port":
        meets = {"port": fresh_port("127.0.0.1", frozenset()), "fixed_port": True}
    used = bench(tmp_path) if needs == "no other node" else of_several(tmp_path, recovery, **meets)
    assert used.preparer.open_port() == 0


class LateFiles(DeviceAssignment):
    """A shared folder that shows a file only when somebody has waited for it, if there is one."""

    late: Path | None = None
    waits = 0

    def pause(self, seconds: float) -> None:
        self.waits += 1
        if self.late is not None:
            self.late.touch()


@pytest.mark.parametrize("ending", ["training", "over"])
def test_a_run_that_is_over_or_trains_leaves_nothing_beside_its_config(tmp_path: Path, ending: str) -> None:
    config = tmp_path / "user" / "config.yaml"
    config.parent.mkdir()
    config.write_text(CONFIG)
    used = bench(tmp_path, recovery=rewriting(config))
    used.events(plan())
    assert len(list(config.parent.iterdir())) == 2, "it has its turn"
    phase = Phase.RUNNING if ending == "training" else Phase.FINISHED
    finished = RunFinished(at_s=1.0, incarnation=1, exit_code=3, why="it gave up")
    event = FirstStep(at_s=1.0, incarnation=1, step=1) if ending == "training" else finished
    used.preparer.tell(event, Step(state=in_phase(phase, 2), why=""))
    assert list(config.parent.iterdir()) == [config]


class Hurried(RunClock):
    """Every look at it takes three seconds."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return 3.0 * self.looks


def test_a_node_that_lacks_the_file_of_a_rank_says_so_before_any_worker_starts(tmp_path: Path) -> None:
    spec = a_spec(workers=2)
    devices = LateFiles(spec, {}, lambda line: None, tmp_path)
    preparer = Preparer(spec, {}, tmp_path / "original", Hurried(), lambda line: None, devices)
    (tmp_path / "rank_2").touch()
    (failed,) = preparer.prepare(of_two_nodes(tmp_path), 0.0)
    assert isinstance(failed, PrepareFailed)
    assert failed.exit_code == 65
    assert failed.why.splitlines() == [
        f"rank 3 has nothing to resume from on node {spec.node}",
        f"  because: {tmp_path}/rank_3 is not there, and another node resumes from it",
        "  try:     --checkpoint_dir=DIR on a file system that all nodes share",
    ]


def test_a_file_that_another_node_has_just_written_is_waited_for(tmp_path: Path) -> None:
    spec = a_spec(workers=2)
    devices = LateFiles(spec, {}, lambda line: None, tmp_path)
    devices.late = tmp_path / "rank_3.index"  # a checkpoint of TensorFlow is several files of one prefix
    preparer = Preparer(spec, {}, tmp_path / "original", RunClock(), lambda line: None, devices)
    (tmp_path / "rank_2").mkdir()
    (prepared,) = preparer.prepare(of_two_nodes(tmp_path), 0.0)
    assert isinstance(prepared, Prepared)
    assert devices.waits == 1


def test_a_template_that_cannot_be_filled_fails_before_any_worker_starts(tmp_path: Path) -> None:
    used = bench(tmp_path, recovery=Recovery(checkpoint_dirs=("ckpt",), resume_args=("--epoch={epoch}",)))
    assert used.failure(plan(replace(checkpoint(5), epoch=None))).exit_code == ConfigError.exit_code


def test_a_master_address_that_nobody_knows_is_asked_for_once_and_named(tmp_path: Path) -> None:
    used = bench(tmp_path, rendezvous=Rendezvous(master_addr="no-such-host.invalid", port=29500))
    failed = used.failure(plan())
    assert failed.exit_code == 69
    assert failed.why.startswith("no-such-host.invalid has no address: ")
    assert "is --master_addr spelled right?" in failed.why
    assert used.said == []


def test_the_users_port_comes_first_and_a_fresh_one_each_time_after_it(tmp_path: Path) -> None:
    wanted = fresh_port("127.0.0.1", frozenset())
    used = bench(tmp_path, rendezvous=Rendezvous(port=wanted))
    ports = [used.port(plan(incarnation=number)) for number in range(4)]
    assert ports[0] == wanted
    assert len(set(ports)) == 4


def test_a_fixed_port_is_always_the_same(tmp_path: Path) -> None:
    wanted = fresh_port("127.0.0.1", frozenset())
    used = bench(tmp_path, rendezvous=Rendezvous(port=wanted, fixed_port=True))
    assert [used.port(plan(incarnation=number)) for number in range(3)] == [wanted] * 3


def test_a_port_that_is_taken_is_replaced_unless_it_is_fixed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        used = bench(tmp_path, rendezvous=Rendezvous(port=taken))
        assert used.port(plan()) != taken
        assert used.said == [f"port {taken} of 127.0.0.1 is taken; using another"]
        failed = bench(tmp_path, rendezvous=Rendezvous(port=taken, fixed_port=True)).failure(plan())
        assert failed.exit_code == 64
        assert f"port {taken} of 127.0.0.1 is taken" in failed.why


@pytest.mark.parametrize("environ", [{}, {"PATH": "/bin"}])
def test_workers_inherit_our_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    assert bench(tmp_path, environ).preparer.command(plan(), 1).environ == environ
