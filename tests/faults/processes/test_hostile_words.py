"""Terminal escapes in what a worker says and in names of files: none leaves the program as it came."""

import json
import re
import struct
import subprocess
from pathlib import Path

from support.runs import FAULTRUN, Launcher

_TITLE = "\x1b]0;owned\x07\x9b2J\u202e"
_WORKER = f"raise ValueError({_TITLE!r} + 'hello')\n"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def checkpoint(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    head = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(head)) + head + bytes(4))


def test_no_escape_of_a_worker_or_a_file_name_reaches_a_terminal_a_page_or_a_log(launcher: Launcher) -> None:
    folder = launcher.folder
    checkpoint(folder / "ck", f"{_TITLE}step_6.safetensors")
    (folder / "term").touch()
    words = ("--worker_num=1", "--max_restarts=0", "--termination_log=term", "--tee=3")
    run = launcher.command(*words, *launcher.program(_WORKER))
    assert run.ends() != 0
    texts = {"console": run.console.read_bytes()}
    verbs = (
        ("status", "--log_dir", str(run.log_dir)),
        ("incident", "--log_dir", str(run.log_dir)),
        ("report", "--log_dir", str(run.log_dir)),
        ("ckpt", "list", "ck"),
        ("ckpt", "list", "--json", "ck"),
        ("ckpt", "choose", "ck"),
    )
    for verb in verbs:
        done = subprocess.run([*FAULTRUN, *verb], cwd=folder, capture_output=True, timeout=120, check=False)
        texts[" ".join(verb)] = done.stdout + done.stderr
    kept = (*run.log_dir.glob("*.txt"), *run.log_dir.glob("report.*"), run.log_dir / "journal.jsonl")
    for file in (folder / "term", *kept):
        texts[file.name] = file.read_bytes()
    assert {name for name, data in texts.items() if _OBEYED.search(data.decode())} == set()
    assert all(b"hello" in texts[name] for name in ("console", "incident_1.txt"))
