"""``faultrun ckpt``: what a person reads, what a program reads, and the exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultrun.cli.ckpt.command import ckpt as command
from faultrun.errors import FaultrunError, NoWholeCheckpoint, UsageError
from support.checkpoints.ckpt_bytes import WEIGHTS, ckpt, records, save
from support.checkpoints.group_infos import group_info
from support.machine.scripts import ended
from support.places import GOLDEN


def run(root: Path, *args: str) -> tuple[str, int]:
    """Output with ``root`` written as ROOT, and the exit code."""
    told = CliRunner().invoke(command, list(args), standalone_mode=False, catch_exceptions=False)
    return told.stdout.replace(str(root), "ROOT"), told.return_value


@pytest.fixture
def incident(tmp_path: Path) -> Path:
    """Two ranks; the newest gasp is torn on both, a save was killed, one file is empty."""
    for rank in range(2):
        where = tmp_path / f"rank_{rank}"
        save(where / "net-1_40.ckpt", ckpt(1, 40, global_step=40))
        save(where / "net-2_40.ckpt", ckpt(2, 80, global_step=80))
        save(where / "net-3_15_breakpoint.ckpt", ckpt(3, 15, global_step=95)[: -20 * (rank + 1)])
    save(tmp_path / "rank_1/net-2_40.ckpt", b"".join(records(WEIGHTS)))
    save(tmp_path / "rank_0/net-3_20.tmp", b"half")
    save(tmp_path / "rank_0/net-3_1.ckpt", b"")
    return tmp_path


@pytest.mark.parametrize("args", ["list", "list --why", "verify", "choose", "choose --why"])
def test_words_for_people(incident: Path, args: str) -> None:
    out, code = run(incident, *args.split(), str(incident))
    golden = GOLDEN / f"ckpt_{args.replace(' --', '_')}.txt"
    assert out == golden.read_text(encoding="utf-8")
    assert code == 0


def test_list_json_has_the_promised_fields_newest_first(incident: Path) -> None:
    out, code = run(incident, "list", "--json", str(incident))
    listed = json.loads(out)
    assert code == 0
    assert all(
        list(one) == [
            "path", "format", "kind", "rank", "epoch", "step", "global_step", "size_bytes", "whole", "why",
            "ranks_present",
        ]
        for one in listed
    )  # fmt: skip
    steps = [one["global_step"] for one in listed if one["global_step"] is not None]
    assert steps == sorted(steps, reverse=True)
    by_path = {one["path"].removeprefix("ROOT/"): one for one in listed}
    assert by_path["rank_0/net-2_40.ckpt"]["whole"] is True
    assert by_path["rank_0/net-2_40.ckpt"]["ranks_present"] == [0, 1]
    assert by_path["rank_1/net-2_40.ckpt"]["whole"] is False
    assert by_path["rank_0/net-3_1.ckpt"]["why"] == "is empty"


def test_choose_json_has_the_promised_fields(incident: Path) -> None:
    out, code = run(incident, "choose", "--json", str(incident))
    chosen = json.loads(out)
    assert code == 0
    assert list(chosen) == ["global_step", "epoch", "files", "restore_ranks", "restore_ranks_map", "refused"]
    assert (chosen["global_step"], chosen["epoch"]) == (80, 2)
    assert chosen["files"] == {"0": "ROOT/rank_0/net-2_40.ckpt", "1": "ROOT/rank_0/net-2_40.ckpt"}
    assert (chosen["restore_ranks"], chosen["restore_ranks_map"]) == ("0", '{"0,1": 0}')
    assert {one["path"]: one["why"] for one in chosen["refused"]}["ROOT/rank_0/net-3_1.ckpt"] == "is empty"


def test_nothing_whole_is_65_for_every_verb(tmp_path: Path) -> None:
    save(tmp_path / "net-1_40.ckpt", ckpt(1, 40)[:-5])
    assert run(tmp_path, "list", str(tmp_path))[1] == 65
    assert run(tmp_path, "verify", str(tmp_path))[1] == 65
    assert run(tmp_path, "choose", "--json", str(tmp_path))[1] == 65
    with pytest.raises(NoWholeCheckpoint) as told:
        run(tmp_path, "choose", str(tmp_path))
    assert told.value.exit_code == 65
    assert str(told.value).replace(str(tmp_path), "ROOT") == (
        "no usable checkpoint in ROOT\n"
        "  because: 1 refused; ROOT/net-1_40.ckpt: cut or garbled at byte 172 of 198\n"
        "  try:     faultrun ckpt list --why ROOT"
    )


def test_no_checkpoint_at_all_is_no_failure(tmp_path: Path) -> None:
    assert run(tmp_path, "list", str(tmp_path)) == ("no checkpoint in ROOT\n", 0)
    assert run(tmp_path, "choose", str(tmp_path)) == ("no checkpoint in ROOT\n", 0)
    (tmp_path / "state-5.bin").write_bytes(b"weights")
    for verb in ("list", "choose"):
        said, code = run(tmp_path, verb, str(tmp_path))
        assert code == 0
        assert said.startswith("no checkpoint in ROOT; a file of no known format, state-5.bin, lies in ROOT;")
    out, code = run(tmp_path, "choose", "--json", str(tmp_path))
    assert (json.loads(out)["global_step"], code) == (None, 0)


def test_depth_name_opens_no_file_to_its_end_and_promises_nothing(incident: Path) -> None:
    out, code = run(incident, "list", "--json", "--depth=name", str(incident))
    assert {one["whole"] for one in json.loads(out)} == {False}
    assert code == 0


def test_depth_structure_does_not_see_a_flipped_bit_and_says_so(tmp_path: Path) -> None:
    data = bytearray(ckpt(1, 40, crc=True))
    data[30] ^= 1
    save(tmp_path / "net-1_40.ckpt", bytes(data))
    out, code = run(tmp_path, "verify", "--depth=structure", str(tmp_path))
    assert "and a checksum (not compared)" in out
    assert code == 0
    assert run(tmp_path, "verify", str(tmp_path))[1] == 65


def test_a_directory_that_does_not_exist_is_a_wrong_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(tmp_path, "list", str(tmp_path / "absent"))


def test_a_pattern_takes_files_of_any_name(tmp_path: Path) -> None:
    save(tmp_path / "state-7.npz", b"x" * 9)
    out, _ = run(tmp_path, "choose", "--checkpoint_pattern", r"state-(?P<step>\d+)\.npz", str(tmp_path))
    assert out == "resume    ROOT/state-7.npz   step 7, periodic\n"


@pytest.mark.parametrize("verb", ["list", "verify"])
def test_a_file_that_is_no_checkpoint_is_not_taken_for_a_whole_one(verb: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("to do")
    out, code = run(tmp_path, verb, str(tmp_path / "notes.txt"))
    assert "no checkpoint in ROOT/notes.txt" in out
    assert code == 65
    assert run(tmp_path, verb, str(tmp_path))[1] == 0, "a folder in which nothing was saved yet"


def test_what_was_verified_for_a_log_dir_is_not_read_again(incident: Path) -> None:
    log_dir = incident / "log"
    log_dir.mkdir()
    first = run(incident, "list", "--json", "--log_dir", str(log_dir), str(incident))
    remembered = (log_dir / "checkpoints.jsonl").read_bytes()
    assert run(incident, "list", "--json", "--log_dir", str(log_dir), str(incident)) == first
    assert (log_dir / "checkpoints.jsonl").read_bytes() == remembered


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Eight ranks in replica groups {0,4} {1,5} {2,6} {3,7}, all with a whole file of step 40."""
    for rank in range(8):
        save(tmp_path / f"ckpt/rank_{rank}/pangu{rank}-1_40.ckpt", ckpt(1, 40))
        save(tmp_path / f"device{rank}/group_info.pb", group_info((rank % 4, rank % 4 + 4)))
    return tmp_path


def test_replica_groups_and_lost_ranks_give_the_references_exact_forms(pairs: Path) -> None:
    script, info = pairs / "restore_ranks.sh", pairs / "recovery_info.json"
    out, code = run(
        pairs, "choose", str(pairs / "ckpt"), "--json", "--group_info", str(pairs / "device0/group_info.pb"),
        "--lost_ranks=1,6", "--restore_ranks_sh", str(script), "--recovery_info", str(info),
    )  # fmt: skip
    chosen = json.loads(out)
    assert code == 0
    assert chosen["restore_ranks"] == "0,2,3,5"
    assert chosen["restore_ranks_map"] == '{"0,4": 0, "1,5": 5, "2,6": 2, "3,7": 3}'
    assert chosen["files"]["1"] == "ROOT/ckpt/rank_5/pangu5-1_40.ckpt"
    assert script.read_text() == (
        "export RESTORE_RANKS=0,2,3,5\n"
        'export RESTORE_RANKS_MAP=\'{"0,4": 0, "1,5": 5, "2,6": 2, "3,7": 3}\'\n'
    )
    assert json.loads(info.read_text()) == {
        "normal_rank": {"2": 6, "5": 1},
        "abnormal_rank": {"1": 5, "6": 2},
    }
    sourced = subprocess.run(
        ["bash", "-c", f'. "{script}"; printf %s "$RESTORE_RANKS_MAP"'],
        stdout=subprocess.PIPE,
        check=True,
        timeout=20,
    )
    assert json.loads(sourced.stdout) == {"0,4": 0, "1,5": 5, "2,6": 2, "3,7": 3}


def test_a_group_without_a_survivor_declines_with_minus_1(pairs: Path) -> None:
    script = pairs / "restore_ranks.sh"
    out, code = run(
        pairs, "choose", str(pairs / "ckpt"), "--json", "--group_info", str(pairs / "device0/group_info.pb"),
        "--lost_ranks=1,5", "--restore_ranks_sh", str(script),
    )  # fmt: skip
    assert (json.loads(out)["restore_ranks"], code) == ("-1", 65)
    assert script.read_text() == "export RESTORE_RANKS=-1\n"


def test_recovery_info_never_uses_a_replacement_twice(tmp_path: Path) -> None:
    for rank in range(3):
        save(tmp_path / f"ckpt/rank_{rank}/net-1_9.ckpt", ckpt(1, 9))
    with pytest.raises(FaultrunError) as told:
        run(
            tmp_path, "choose", str(tmp_path / "ckpt"), "--world_size=3", "--lost_ranks=0,1",
            "--recovery_info", str(tmp_path / "info.json"),
        )  # fmt: skip
    assert "replica group {0,1,2} lost 2 ranks and has 1 to replace them one by one" in str(told.value)
    assert not (tmp_path / "info.json").exists()


def test_group_files_of_another_world_are_a_configuration_error(pairs: Path) -> None:
    with pytest.raises(FaultrunError) as told:
        run(
            pairs, "choose", str(pairs / "ckpt"), "--group_info", str(pairs / "device0/group_info.pb"),
            "--world_size=4",
        )  # fmt: skip
    assert told.value.exit_code == 78


def test_bad_lost_ranks_are_a_wrong_command_line(pairs: Path) -> None:
    with pytest.raises(UsageError):
        run(pairs, "choose", str(pairs / "ckpt"), "--lost_ranks=1,x")


SLOW_FORMAT = """
import sys, threading
from dataclasses import replace
from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.format import Claim
from faultrun.checkpoints.registry import Registry
from faultrun.checkpoints.find import verify_all
from faultrun.cli.ckpt.progress_bar import Bar
from faultrun.model.checkpoint import Depth, Verdict

class Slow:
    name = "slow"
    def claim(self, listing):
        return [Claim(path=listing.join(name), members=(name,)) for name in listing.files]
    def read(self, entry):
        return entry
    def verify(self, entry, look):
        for _ in range(4):
            threading.Event().wait(float(sys.argv[2]) / 4)
            look.meter(entry.size_bytes // 4)
        return Verdict(whole=True, why="", depth=Depth.CHECKSUM)

catalog = Catalog([sys.argv[1]], registry=Registry(formats=(Slow(),)))
bar = Bar()
verify_all(catalog, catalog.scan().entries, progress=bar)
bar.close()
"""


@pytest.mark.long
@pytest.mark.parametrize(("duration_s", "shown"), [(1.4, True), (0.0, False)])
def test_a_progress_bar_appears_on_stderr_only_when_it_takes_longer_than_a_second(
    tmp_path: Path, duration_s: float, shown: bool
) -> None:
    save(tmp_path / "a", b"x" * 400)
    script = f"import sys; sys.path[:0] = {sys.path!r}\n{SLOW_FORMAT}"
    told = ended(script, str(tmp_path), str(duration_s))
    assert (told.returncode, told.stdout) == (0, "")
    assert ("verifying" in told.stderr) == shown


def shard(root: Path, group: list[int], rank: int, **more: object) -> None:
    """A save of faultrun's SDK in a world of two ranks."""
    name = f"gasp-step_9.{rank}.bin"
    facts = {
        "schema": 1, "path": name, "step": 9, "world_size": 2, "rank": rank, "replica_group": group,
        "size_bytes": 1, "digest": "", "run_id": "", "incarnation": 0, "node": "n", **more,
    }  # fmt: skip
    save(root / name, b"x")
    save(root / f"{name}.manifest.json", json.dumps(facts).encode())


@pytest.mark.parametrize(
    ("group", "words", "one_rank_code"),
    [
        ([0, 1], "replicated: serves any number of ranks", 0),
        ([0], "sharded: serves a run of 2 ranks only", 65),
    ],
)
def test_whom_a_save_serves_is_listed_as_it_is_chosen(
    tmp_path: Path, group: list[int], words: str, one_rank_code: int
) -> None:
    shard(tmp_path, group, 0)
    shard(tmp_path, [1] if group == [0] else group, 1)
    listed, code = run(tmp_path, "list", "--why", str(tmp_path))
    assert (words in listed, code) == (True, 0)
    assert run(tmp_path, "choose", "--json", "--world_size=2", str(tmp_path))[1] == 0
    chosen, code = run(tmp_path, "choose", "--json", "--world_size=1", str(tmp_path))
    assert code == one_rank_code
    assert ("its state is sharded" in chosen) == (code == 65)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (r"s(?P<step>\d+)", "step 7"),
        (r"s(?P<epoch>\d+)", "epoch 7"),
        (r"s(?P<epoch>\d)-(?P<step_in_epoch>\d+)", "epoch 7, step 30 of it"),
        (r"s\d+", "step unknown"),
    ],
)
def test_how_far_a_recovery_point_was_is_said_in_known_words(tmp_path: Path, names: str, words: str) -> None:
    save(tmp_path / ("s7-30" if "-" in names else "s7"), b"x")
    out, _ = run(tmp_path, "choose", "--checkpoint_pattern", names, str(tmp_path))
    assert out.splitlines()[0].endswith(f"   {words}, periodic")
