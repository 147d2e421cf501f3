"""The file over which ranks of one node meet: read alike by all, and nobody is kept by one that is gone."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.sdk.stay.file_store import RendezvousFile

WHOLE = b'{"by": "1-2-3", "does": "set", "key": "here/1", "value": "31"}\n'
LINE = [WHOLE[:size] for size in range(len(WHOLE))]


@pytest.fixture
def at(tmp_path: Path) -> Path:
    (tmp_path / "meeting").touch()
    return tmp_path / "meeting"


def test_ranks_read_what_the_others_wrote_before_and_after_they_came(at: Path) -> None:
    first = RendezvousFile(str(at))
    first.set("here/0", b"1")
    second = RendezvousFile(str(at))
    assert second.get(["here/0", "here/1"], 0.0) is None
    second.set("here/1", bytes(range(256)))
    assert first.get(["here/1", "here/0"], 0.0) == [bytes(range(256)), b"1"]
    assert [second.drop("here/0"), first.drop("here/0")] == [True, False]
    assert first.get(["here/0"], 0.0) is None


def test_every_number_and_every_place_is_given_once_however_many_ask_at_a_time(at: Path) -> None:
    files, together = [RendezvousFile(str(at)) for _ in range(8)], threading.Barrier(8)

    def asks(file: RendezvousFile) -> tuple[list[int], bytes]:
        together.wait(60)
        return [file.add("count", 1) for _ in range(50)], file.swap("leader", b"", str(id(file)).encode())

    with ThreadPoolExecutor(8) as ranks:
        answers = list(ranks.map(asks, files))
    assert sorted(number for numbers, _ in answers for number in numbers) == list(range(1, 401))
    assert len({leader for _, leader in answers}) == 1


@given(torn=st.binary(max_size=40) | st.sampled_from(LINE))
def test_what_a_killed_rank_has_half_written_keeps_nobody(
    torn: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    at = tmp_path_factory.mktemp("torn") / "meeting"
    at.touch()
    file = RendezvousFile(str(at))
    file.set("here/0", b"1")
    with at.open("ab") as killed:
        killed.write(torn)
    file.set("here/2", b"1")
    assert file.add("count", 1) == 1
    assert file.get(["here/0", "here/2"], 0.0) == [b"1", b"1"]


def test_a_value_may_be_large(at: Path) -> None:
    first, second = RendezvousFile(str(at)), RendezvousFile(str(at))
    large = bytes(range(256)) * (1 << 10)
    first.set("large", large)
    first.set("small", b"1")
    assert second.get(["small", "large"], 0.0) == [b"1", large]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_gone_is_told_and_not_made_again(replaced: bool, at: Path) -> None:
    file = RendezvousFile(str(at))
    file.set("here/0", b"1")
    at.unlink()
    if replaced:
        at.touch()
    file.set("here/1", b"1")
    with pytest.raises(OSError, match="meeting"):
        file.get(["here/2"], 0.0)
    assert at.exists() == replaced
    at.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        RendezvousFile(str(at))
    assert not at.exists()


def test_its_descriptor_is_closed_with_it(at: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    RendezvousFile(str(at)).set("here/0", b"1")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
