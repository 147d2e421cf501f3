"""Looking into pickles: the same data as pickle sees, nothing executed, and any bytes survived."""

import collections
import io
import pickle
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.formats.torch.pickle_reader import MAX_PICKLE_BYTES, TooLong, peek, peek_file
from faultrun.checkpoints.formats.torch.pickle_values import OPAQUE, Global, Instance, Table, Value
from faultrun.checkpoints.reading import opened
from support.checkpoints.torch_files import Bomb

_FRAME_BEGINS = 11
"""Behind the protocol and the first frame's own length."""

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3).map(collections.OrderedDict)
    ),
    max_leaves=12,
)


def as_python(value: Value) -> object:
    if isinstance(value, Table):
        return {as_python(key): as_python(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_python(item) for item in value]
    if isinstance(value, tuple):
        return tuple(as_python(item) for item in value)
    return value


@given(plain, st.integers(0, pickle.HIGHEST_PROTOCOL))
@settings(max_examples=150, deadline=None)
def test_plain_data_is_read_as_pickle_reads_it_in_every_protocol(data: object, protocol: int) -> None:
    program = pickle.dumps(data, protocol=protocol)
    peeked = peek(program)
    assert as_python(peeked.value) == data
    assert peeked.end == len(program)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_bytes_sets_and_objects_are_opaque_but_their_neighbours_are_read(protocol: int) -> None:
    data = {
        "a": b"xyz" * 100,
        "b": {1, 2},
        "c": frozenset([3]),
        "d": Path("/p"),
        "e": bytearray(9),
        "step": 7,
    }
    value = peek(pickle.dumps(data, protocol=protocol)).value
    assert isinstance(value, Table)
    assert value.get("step") == 7
    assert not isinstance(value.get("d"), str | Path)
    assert value.get("missing") is OPAQUE


def test_the_last_of_two_values_of_a_key_counts() -> None:
    value = peek(b"\x80\x02}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00aK\x02u.").value
    assert isinstance(value, Table)
    assert value.get("a") == 2


def test_a_program_that_would_run_a_command_is_read_and_not_run(tmp_path: Path) -> None:
    program = pickle.dumps({"step": 5, "bomb": Bomb(tmp_path / "ran")})
    value = peek(program).value
    assert isinstance(value, Table)
    bomb = value.get("bomb")
    assert isinstance(bomb, Instance)
    assert isinstance(bomb.maker, Global)
    assert bomb.maker.name in ("posix.system", "nt.system")
    assert value.get("step") == 5
    assert not (tmp_path / "ran").exists()
    pickle.loads(program)  # noqa: S301 - proves that the program was a live one
    assert (tmp_path / "ran").exists()


REAL = pickle.dumps(
    collections.OrderedDict(
        epoch=3, step=2**40, lr=1e-3, name="résumé", path=Path("/a"), seen={"x": (1, [2])}
    ),
    protocol=4,
)


@given(plain, st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_is_cut_out_of_a_frame_is_missed(data: object, chance: st.DataObject) -> None:
    """An unpickler would miss it, too, or build something else of what is left."""
    program = pickle.dumps(["begins", data, "ends"], protocol=4)
    begin = chance.draw(st.integers(_FRAME_BEGINS, len(program) - 1))
    end = chance.draw(st.integers(begin + 1, len(program)))
    left = program[:begin] + program[end:]
    with pytest.raises(Unreadable):
        peek(left)
    followed = left + b"." * (end - begin)
    if followed != program:
        with pytest.raises(Unreadable):
            peek(followed)


@pytest.mark.parametrize("pickler", [pickle.Pickler, pickle._Pickler])
def test_frames_end_where_picklers_end_them(pickler: type[pickle.Pickler]) -> None:
    """After 64 KiB, and around bytes that are longer than that."""
    texts = [f"{number:01000}" for number in range(200)]
    data = [*texts[:100], bytes(200_000), "x" * 200_000, *texts[100:], b"short"]
    file = io.BytesIO()
    pickler(file, protocol=4).dump(data)
    program = file.getvalue()
    peeked = peek(program + b"what follows in a file")
    assert peeked.end == len(program)
    assert isinstance(peeked.value, list)
    assert [one for one in peeked.value if isinstance(one, str)] == [one for one in data if type(one) is str]
    first_ends = _FRAME_BEGINS + int.from_bytes(program[3:_FRAME_BEGINS], "little")
    assert program[first_ends:][:1] == b"\x95", "another frame begins"
    for at in (100, 1500, 60_000):
        with pytest.raises(Unreadable):
            peek(program[:at] + program[at + 1 :] + b"what follows in a file")


@given(st.integers(0, len(REAL) - 1))
def test_every_cut_of_a_pickle_is_refused(length: int) -> None:
    with pytest.raises(Unreadable):
        peek(REAL[:length])


@given(
    st.binary(max_size=80)
    | st.tuples(st.integers(0, len(REAL) - 1), st.binary(max_size=4), st.integers(0, 4)).map(
        lambda edit: REAL[: edit[0]] + edit[1] + REAL[edit[0] + edit[2] :]
    )
)
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    try:
        peek(data)
    except Unreadable as refused:
        assert refused.why


HOSTILE = {
    "a memo index of four billion": b"\x80\x02K\x01r\xff\xff\xff\xff.",
    "a string of four gigabytes": b"\x80\x02X\xff\xff\xff\xffabc.",
    "bytes of 2**63": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fabc.",
    "a number of two gigabytes": b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    "a number of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
    "a memo index of a million digits": b"K\x01p" + b"9" * 1_000_000 + b"\n.",
    "a hundred thousand nested tuples as a key": b"}K\x01" + b"\x85" * 100_000 + b"K\x02s.",
    "tuples that double in size sixty times, as a key": b"}K\x01" + b"2\x86" * 60 + b"K\x02s.",
    "a list in itself": b"]q\x00h\x00a.",
    "a dict as its own key": b"}q\x00h\x00K\x01s.",
    "a hundred thousand dicts": b"(" + b"}" * 100_000 + b"t.",
    "a hundred thousand marks": b"(" * 100_000 + b"N.",
    "nothing on the stack": b".",
    "an odd number of items": b"}(K\x01u.",
}


LONG = {name for name, data in HOSTILE.items() if 100_000 <= len(data) < 1_000_000}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in HOSTILE]
)
def test_a_hostile_program_costs_little_memory(name: str) -> None:
    data = HOSTILE[name]
    tracemalloc.start()
    try:
        peek(data)
    except Unreadable:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100 * len(data) + 200_000


def test_more_instructions_than_the_limit_are_too_long_and_not_damaged() -> None:
    with pytest.raises(TooLong, match="more than 100 instructions"):
        peek(b"(" + b"N" * 200 + b"t.", limit=100)


def test_a_pickle_in_a_file_is_read_through_growing_windows(tmp_path: Path) -> None:
    data = {"text": "x" * 700_000, "step": 9}
    path = tmp_path / "p"
    path.write_bytes(b"junk" + pickle.dumps(data) + b"after")
    with opened(str(path)) as file:
        peeked = peek_file(file, 4)
    assert isinstance(peeked.value, Table)
    assert peeked.value.get("step") == 9
    assert peeked.end == path.stat().st_size - len("after")


def test_a_pickle_beyond_the_largest_window_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "p"
    with path.open("wb") as file:
        file.write(b"\x80\x02T" + (MAX_PICKLE_BYTES + 10).to_bytes(4, "little"))
        file.truncate(MAX_PICKLE_BYTES + 100)
    with opened(str(path)) as opened_file, pytest.raises(TooLong, match="longer than"):
        peek_file(opened_file, 0)
