"""The stacks that a worker writes by itself."""

import threading
from pathlib import Path

from faultrun.sdk.session import Session
from faultrun.sdk.worker.death_note import write_other_threads


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
