"""What the environment tells the SDK."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from faultrun import sdk
from faultrun.model.wire import SLOT_BYTES
from faultrun.sdk.session import read_identity, read_session
from faultrun.sdk.worker.progress_slot import ProgressSlot

OURS = {
    "FAULTRUN_SOCKET": "/s",
    "RANK": "3",
    "WORLD_SIZE": "8",
    "FAULTRUN_GRACE_S": "12.5",
    "FAULTRUN_INCARNATION": "2",
}


def test_a_peers_folder_is_told_by_ours() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    told = read_identity({**environ, "FAULTRUN_WORKER_FOLDERS": "/r/n{node_rank}/w_{local_rank}"})
    assert told.beside(Path("/r/n1/w_1/out/_gasp"), 0) == Path("/r/n0/w_0/out/_gasp")
    assert told.beside(Path("/shared/out"), 0) == Path("/shared/out")
    assert read_identity(environ).beside(Path("/r/out"), 0) == Path("/r/out")


def test_without_faultrun_there_is_no_session() -> None:
    assert read_session({"RANK": "0", "WORLD_SIZE": "2"}) is None


def test_rank_window_and_incarnation_are_read() -> None:
    session = read_session(OURS)
    assert session is not None
    assert (session.rank, session.world_size, session.grace_s, session.incarnation) == (3, 8, 12.5, 2)
    assert session.point is None


def test_mindspores_names_serve_as_well() -> None:
    session = read_identity({"RANK_ID": "1", "RANK_SIZE": "2"})
    assert (session.rank, session.world_size) == (1, 2)


def test_nonsense_is_not_believed() -> None:
    session = read_identity({"RANK": "x", "WORLD_SIZE": "-4", "FAULTRUN_GRACE_S": "soon"})
    assert (session.rank, session.world_size, session.grace_s) == (0, 1, 30.0)


def test_the_recovery_point_is_read() -> None:
    session = read_session(
        {
            **OURS,
            "FAULTRUN_RESUME_FROM": "/c/a.pt",
            "FAULTRUN_RESUME_STEP": "40",
            "FAULTRUN_RESUME_EPOCH": "",
            "FAULTRUN_RESTART_REASON": "fault",
        }
    )
    assert session is not None
    assert session.point is not None
    assert (session.point.path, session.point.step, session.point.epoch) == ("/c/a.pt", 40, None)
    assert session.point.reason == "fault"


def test_the_file_that_a_rank_is_told_is_not_replaced_by_one_that_looks_like_its_own(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}").mkdir()
        (tmp_path / f"rank_{rank}" / "a.pt").write_bytes(b"")
    path = str(tmp_path / "rank_0" / "a.pt")
    maps = '{"0,2": 0, "1,3": 1}'
    session = read_session({**OURS, "FAULTRUN_RESUME_FROM": path, "RESTORE_RANKS_MAP": maps})
    assert session is not None
    assert session.point is not None
    assert session.point.path == path


def test_ranks_of_a_page_save_the_same_step_whoever_is_asked_first(tmp_path: Path) -> None:
    page = tmp_path / "progress"
    page.write_bytes(bytes(2 * SLOT_BYTES))
    first, second = ProgressSlot(f"{page}:0"), ProgressSlot(f"{page}:1")
    assert (first.agree_on_save(0, 2), first.joined_save()) == (1, 1)
    assert second.agree_on_save(1, 2) == 1, "it has made the step that is running elsewhere"
    assert (first.joined_save(), second.joined_save()) == (2, 2)
    assert second.agree_on_save(8, 2) == 9, "another save, long after"
    assert first.joined_save() == 1
    assert first.agree_on_save(8, 2) == 9
    assert (second.agree_on_save(9, 2), first.agree_on_save(9, 2)) == (10, 10), (
        "right after it, a save of its own"
    )
    assert (first.agree_on_save(14, 2), second.agree_on_save(13, 2)) == (15, 15), "it is a step behind"
    second.propose_stop(4)
    assert (first.agreed_stop(), first.joined_save()) == (4, 2)
    assert ProgressSlot("").agree_on_save(5, 2) == 6


ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.tuples(st.integers()), st.just(object())
)


@given(first=ANYTHING, second=ANYTHING, third=ANYTHING)
def test_whatever_it_is_given_no_call_raises(first: Any, second: Any, third: Any) -> None:
    assert sdk.resume() is None
    folder = sdk.Folder(directory=first, keep=second, replica_group=third)
    sdk.start(save=first, directory=second, name=third)
    sdk.start(save=print, directory=folder, name=third)
    sdk.step(first, second)
    with sdk.updating(), sdk.phase(first):
        assert not sdk.should_stop()
    sdk.done(ends_within_s=first)
