"""Rivals that are not installed with us: each gets a virtual environment that sees ours, and itself.

``python -m benchmarks.harness.rivals`` makes them; a benchmark leaves out what is not there, and says so.
"""

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".rivals"
NVRX = FOLDER / "nvrx" / "bin"
_NVRX_PACKAGES = ("nvidia-resiliency-ext==0.4.1", "nvidia-ml-py==13.580.82", "defusedxml==0.7.1", "packaging")


def ft_launcher_missing() -> str:
    """Why ft_launcher cannot run here; empty when it can."""
    return "" if (NVRX / "ft_launcher").exists() else "make it with python -m benchmarks.harness.rivals"


def main() -> int:
    """Install what is missing; 1 when that failed."""
    root = NVRX.parent
    venv.create(root, with_pip=True)
    (own,) = root.glob("lib/python*/site-packages")
    # Ours comes last: torch and psutil are shared, and what the rival pins wins.
    ours = [path for path in sys.path if Path(path).name == "site-packages"]
    (own / "ours.pth").write_text("\n".join(ours) + "\n", encoding="utf-8")
    install = [str(NVRX / "python"), "-m", "pip", "install", "--quiet", "--no-deps", *_NVRX_PACKAGES]
    return subprocess.run(install, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
