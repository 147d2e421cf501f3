"""What a worker notes of its end: the error, a lost peer told from a mistake, the stacks of its threads."""

import json
import threading
from pathlib import Path

import pytest

from faultrun.sdk.session import Session
from faultrun.sdk.worker.death_note import tells_of_a_dead_peer, write_note, write_other_threads


def fetch(started: threading.Event, ended: threading.Event) -> None:
    started.set()
    ended.wait(60)


def test_every_other_thread_is_named_with_its_calls_innermost_first(tmp_path: Path) -> None:
    started, ended = threading.Event(), threading.Event()
    loader = threading.Thread(target=fetch, name="loader", args=(started, ended))
    loader.start()
    started.wait(60)
    helper = threading.Thread(
        target=write_other_threads, args=(Session(rank=3, progress=f"{tmp_path}/page:3"),)
    )
    helper.start()
    helper.join()
    ended.set()
    loader.join()
    text = (tmp_path / "threads_3.txt").read_text()
    own = text[text.index('Thread "loader"') :].split("\n\n")[0]
    assert own.index(" in wait") < own.index(" in fetch") < own.index(" in _bootstrap")
    assert "MainThread" not in text
    assert helper.name not in text


def test_without_a_page_there_is_no_place_for_them(tmp_path: Path) -> None:
    write_other_threads(Session(progress=""))
    write_other_threads(Session(progress=f"{tmp_path}/gone/page:0"))


def chained() -> BaseException:
    error = ValueError("while cleaning up")
    error.__context__ = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")
    return error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]: Connection reset by peer."),
        RuntimeError("NCCL error in: X.cpp, remote process exited or there was a network error"),
        RuntimeError("Launch kernel failed, name:Default/grad_reducer-DistributedGradReducer/AllReduce-op2"),
        ConnectionResetError(104, "Connection reset by peer"),
        TimeoutError("waited too long"),
        chained(),
    ],
)
def test_errors_of_collectives_tell_of_a_lost_peer(error: BaseException) -> None:
    assert tells_of_a_dead_peer(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("connection closed by peer"),  # a word in somebody's message is not enough
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x4 and 5x2)"),
        KeyError("allreduce"),
        FileNotFoundError(2, "No such file or directory", "data.csv"),
        MemoryError(),
    ],
)
def test_mistakes_of_the_script_do_not(error: BaseException) -> None:
    assert not tells_of_a_dead_peer(error)


def test_a_note_is_written_as_torch_writes_it_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "error.json"
    write_note(str(path), ValueError("first"), 1700000000.9)
    write_note(str(path), ValueError("second"), 1700000001.0)
    note = json.loads(path.read_text())["message"]
    assert note["message"] == "ValueError: first"
    assert note["extraInfo"] == {"py_callstack": "ValueError: first\n", "timestamp": "1700000000"}


def test_without_a_place_no_note_is_written() -> None:
    write_note("", ValueError("x"), 0.0)
