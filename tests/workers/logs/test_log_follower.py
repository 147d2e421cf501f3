"""Logs on the console: copied by a process of its own, which nobody waits for."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.machine.processes import lives, wait_until
from support.machine.scripts import ended
from support.places import TESTS

_CODE = """
import sys
from pathlib import Path
from faultrun.workers.logs import log_follower as follow
folder = Path(sys.argv[1])
follow._LAST_WORDS_S = 60.0
follower = follow.Follower()
logs = [folder / "0.log", folder / "1.log"]
for rank, log in enumerate(logs):
    follower.follow(log, f"[{rank}]: ", 1 + rank)
def write(rank, text):
    with logs[rank].open("a") as file:
        file.write(text)
"""

_ENVIRON = os.environ | {"PYTHONPATH": str(TESTS)}


def test_lines_are_copied_behind_their_prefix_to_their_stream(tmp_path: Path) -> None:
    code = """
write(0, "one\\ntw")
write(1, "error\\n")
write(0, "o\\nunfinished")
follower.close()
"""
    done = ended(_CODE + code, str(tmp_path))
    assert done.stdout == "[0]: one\n[0]: two\n[0]: unfinished\n"
    assert done.stderr == "[1]: error\n"


def test_what_was_there_before_is_shown_too_and_a_new_incarnation_has_new_files(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_text("before\n")
    code = """
follower.follow(folder / "2.log", "[2]: ", 1)
(folder / "2.log").write_text("next life\\n")
follower.close()
"""
    done = ended(_CODE + code, str(tmp_path))
    assert sorted(done.stdout.splitlines()) == ["[0]: before", "[2]: next life"]


def test_lines_that_are_picked_go_to_a_file_whether_they_are_shown_or_not(tmp_path: Path) -> None:
    code = """
picked = ("apple", "orange"), folder / "picked.log"
follower.pick(folder / "2.log", "[2]: ", *picked)
follower.follow(folder / "3.log", "[3]: ", 1)
follower.pick(folder / "3.log", "[3]: ", *picked)
(folder / "2.log").write_text("an apple\\na pear\\n")
(folder / "3.log").write_text("an orange\\n")
follower.close()
"""
    assert ended(_CODE + code, str(tmp_path)).stdout == "[3]: an orange\n"
    picked = (tmp_path / "picked.log").read_text().splitlines()
    assert sorted(picked) == ["[2]: an apple", "[3]: an orange"]


@pytest.mark.slow
def test_a_console_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    code = """
import time
follow._LAST_WORDS_S = 0.2
began = time.monotonic()
for _ in range(2000):
    write(0, "x" * 1000 + "\\n")
wrote_s = time.monotonic() - began
follower.close()
Path(sys.argv[1], "took").write_text(f"{wrote_s} {time.monotonic() - began}")
"""
    read_end, write_end = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", _CODE + code, str(tmp_path)], stdout=write_end)
    os.close(write_end)
    try:
        assert process.wait(30) == 0
        _, took_s = map(float, (tmp_path / "took").read_text().split())
        assert took_s < 10
    finally:
        process.kill()
        os.close(read_end)


def test_a_console_that_went_away_ends_the_copying_and_nothing_else(tmp_path: Path) -> None:
    code = """
write(0, "lost\\n" * 100)
write(0, "lost\\n" * 100)
follower.close()
sys.stderr.write("went on")
"""
    read_end, write_end = os.pipe()
    os.close(read_end)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _CODE + code, str(tmp_path)],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=20,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "went on")
    assert time.monotonic() - began < 10


def test_it_ends_with_the_supervisor_even_if_that_was_killed(tmp_path: Path) -> None:
    code = """
import os, signal
Path(sys.argv[1], "pid").write_text(str(follower._copier.pid))
write(0, "last words\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = ended(_CODE + code, str(tmp_path))
    assert done.returncode == -9
    assert "[0]: last words\n" in done.stdout
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not lives(pid), what="the follower's end")


@pytest.mark.long
def test_a_line_without_an_end_is_shown_in_pieces_while_it_grows(tmp_path: Path) -> None:
    code = """
from support.machine.processes import wait_until
for _ in range(512):
    write(0, "x" * (1 << 16))
wait_until(lambda: os.stat(sys.argv[2]).st_size > 32 << 20)
write(0, "\\nend\\n")
follower.close()
"""
    seen = tmp_path / "seen"
    with seen.open("wb") as console:
        command = [sys.executable, "-c", "import os\n" + _CODE + code, str(tmp_path), str(seen)]
        subprocess.run(command, stdout=console, timeout=60, check=True, env=_ENVIRON)
    *pieces, end = seen.read_text().splitlines()
    assert end == "[0]: end"
    assert all(piece.startswith("[0]: ") and len(piece) < 1 << 18 for piece in pieces)
    assert sum(len(piece) - len("[0]: ") for piece in pieces) == 512 << 16


def test_without_inotify_the_files_are_looked_at_again_and_again(tmp_path: Path) -> None:
    code = """
from support.machine.processes import wait_until
write(0, "one\\n")
wait_until(lambda: os.stat(sys.argv[2]).st_size > 0)
write(0, "two\\n")
follower.close()
"""
    seen = tmp_path / "seen"
    used_up = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
    namespace = ["unshare", "-Ur", "sh", "-c", used_up, "sh"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    with seen.open("wb") as console:
        command = [*namespace, sys.executable, "-c", "import os\n" + _CODE + code, str(tmp_path), str(seen)]
        subprocess.run(command, stdout=console, timeout=60, check=True, env=_ENVIRON)
    assert seen.read_text() == "[0]: one\n[0]: two\n"


def test_many_ranks_are_followed_through_many_lives_with_a_descriptor_each(tmp_path: Path) -> None:
    wanted = sorted(f"[{rank}]: life {life}" for rank in range(100) for life in range(3))
    code = """
for life in range(3):
    for rank in range(100):
        log = folder / f"a name that is not short, as those of a shared folder are not {rank} {life}.log"
        log.write_text(f"life {life}\\n")
        follower.follow(log, f"[{rank}]: ", 1)
follower.close()
"""
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (130, 130))\n"
    command = [sys.executable, "-c", limited + _CODE + code, str(tmp_path)]
    with (tmp_path / "console").open("w") as console:
        subprocess.run(command, stdout=console, timeout=120, check=True)
    assert sorted((tmp_path / "console").read_text().splitlines()) == wanted


def test_of_a_line_that_is_written_anew_its_last_state_is_shown(tmp_path: Path) -> None:
    code = """
write(0, "\\r 10%|#   |\\r 50%|##  |\\r100%|####|\\nwindows\\r\\n")
follower.close()
"""
    assert ended(_CODE + code, str(tmp_path)).stdout == "[0]: 100%|####|\n[0]: windows\n"


def test_a_colour_ends_with_its_line(tmp_path: Path) -> None:
    code = """
write(0, "\\x1b[31mred\\nplain\\n")
follower.close()
"""
    shown = ended(_CODE + code, str(tmp_path)).stdout.splitlines()
    assert [line.endswith("\x1b[0m") for line in shown] == [True, True]


@pytest.mark.slow
def test_a_line_that_waits_for_its_end_is_shown_as_it_stands(tmp_path: Path) -> None:
    code = """
from support.machine.processes import wait_until
write(0, "\\r 10%\\r 20%")
wait_until(lambda: os.stat(sys.argv[2]).st_size > 0)
write(0, "\\r100%\\n")
follower.close()
"""
    seen = tmp_path / "seen"
    soon = "import os\n" + _CODE.replace("follower =", "follow._UNFINISHED_S = 0.3\nfollower =")
    with seen.open("wb") as console:
        command = [sys.executable, "-c", soon + code, str(tmp_path), str(seen)]
        subprocess.run(command, stdout=console, timeout=60, check=True, env=_ENVIRON)
    assert seen.read_text() == "[0]:  20%\n[0]: 100%\n"


@pytest.mark.long
def test_a_pipe_gets_all_that_was_asked_for_and_picks_miss_nothing(tmp_path: Path) -> None:
    code = """
log = folder / "2.log"
flood = b"an apple\\n" + (b"x" * 999 + b"\\n") * 7_000
log.write_bytes(flood)
follower.follow(log, "[2]: ", 1)
follower.pick(log, "[2]: ", ("apple",), folder / "picked.log")
follower.close()
"""
    first, *others = ended(_CODE + code, str(tmp_path)).stdout.splitlines()
    assert first == "[2]: an apple"
    assert others == ["[2]: " + "x" * 999] * 7_000
    assert (tmp_path / "picked.log").read_text() == "[2]: an apple\n"


@pytest.mark.long
def test_only_a_silent_log_is_watched_by_the_kernel_and_what_comes_then_is_seen(tmp_path: Path) -> None:
    code = """
import threading
from contextlib import suppress
from support.machine.processes import wait_until
def watches():
    found = 0
    for info in Path(f"/proc/{follower._copier.pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # it closes what it has inherited
            found += info.read_text().count("inotify wd:")
    return found
def shown():
    return os.stat(sys.argv[2]).st_size
wait_until(lambda: watches() == 2)
enough = threading.Event()
def talk():
    while not enough.wait(0.01):
        write(0, "x\\n")
talker = threading.Thread(target=talk)
talker.start()
wait_until(lambda: watches() == 1)
enough.set()
talker.join()
wait_until(lambda: watches() == 2)
before = shown()
write(0, "end\\n")
wait_until(lambda: shown() > before)
follower.close()
"""
    seen = tmp_path / "seen"
    with seen.open("wb") as console:
        command = [sys.executable, "-c", "import os\n" + _CODE + code, str(tmp_path), str(seen)]
        subprocess.run(command, stdout=console, timeout=60, check=True, env=_ENVIRON)
    assert seen.read_text().splitlines()[-1] == "[0]: end"
