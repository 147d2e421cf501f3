from pathlib import Path

import pytest

from faultrun.rehearse.isolation.choose_isolation import SharedMemory

STORE = "faultrun-fe00-2142d8-94821c76db9a24aa-1"
"""Where survivors met under a supervisor that was killed, and never started again."""


@pytest.mark.parametrize("name", ["sem.mp-abc", "psm_1a2b", "torch_12_34_0", "nccl-Xyz", STORE])
def test_what_libraries_make_there_keeps_nobody_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    memory = SharedMemory(tmp_path)
    assert (memory.allowed, memory.caution) == ((tmp_path,), "")
    assert memory.words == f"it could write to shared memory in {tmp_path}, too"


def test_where_somebody_may_have_saved_nothing_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "faultrun-saves-1").mkdir()
    (tmp_path / "psm_1").write_bytes(b"x")
    memory = SharedMemory(tmp_path)
    assert memory.allowed == ()
    assert memory.words == memory.caution
    assert memory.words == f"{tmp_path} could not be written to, for ckpt, faultrun-saves-1 is there"


def test_what_was_left_there_is_named(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path)
    for number in range(5):
        (tmp_path / f"torch_{number}").write_bytes(b"x")
    first = ", ".join(f"{tmp_path}/torch_{number}" for number in range(3))
    assert memory.words.endswith(f"too; {first} and 2 more was left or changed there meanwhile")


def test_without_it_there_is_nothing_to_keep(tmp_path: Path) -> None:
    assert SharedMemory(tmp_path / "none").kept == ()
