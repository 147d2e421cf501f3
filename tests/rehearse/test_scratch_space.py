import os
import shutil
import subprocess
import sys
from errno import ENOSPC
from pathlib import Path

import pytest

from faultrun.rehearse.rehearsal import ScratchFull, require_room
from support.places import TESTS

SCRIPT = TESTS / "rehearse" / "scripts" / "train.py"
SMALL = 'mount -t tmpfs -o size=1m none "$0" || exit 69; exec "$@"'


def test_a_message_of_a_full_disk_is_told_with_what_was_written(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    require_room(scratch, "Traceback: KeyError")
    (scratch / "a.pt").write_bytes(bytes(3 << 20))
    with pytest.raises(ScratchFull, match="ran out of room") as told:
        require_room(scratch, f"OSError: [Errno 28] {os.strerror(ENOSPC)}: 'a.pt'")
    assert told.value.because.startswith("3.0 MiB were written there, and ")
    assert told.value.hint.startswith("--scratch=DIR")
    assert str(tmp_path) in str(told.value)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts a small disk")
def test_a_rehearsal_on_a_small_disk_blames_the_disk_and_not_the_training(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    ballast = tmp_path / "train.py"
    large = "open('large', 'wb').write(bytes(2 << 20))\n"
    ballast.write_text(SCRIPT.read_text().replace("\n\nrank = ", f"\n\n{large}\n\nrank = ", 1))
    words = ("rehearse", "--minutes=5", f"--scratch={tmp_path}/small", "--faults=rank", str(ballast))
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", SMALL, f"{tmp_path}/small", sys.executable, "-m", "faultrun", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    if done.returncode == 69 or "unshare" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 71, done.stderr
    assert f"ran out of room, and so it says nothing: {tmp_path}/small" in done.stderr
    assert "--scratch=DIR" in done.stderr
    assert not (tmp_path / "large").exists()
