"""``bare.py N PROGRAM...``: N workers with nobody watching: the measure of what a launcher changes.

Ends with the first exit code that is not 0.
"""

import os
import subprocess
import sys


def main() -> int:
    workers, program = int(sys.argv[1]), sys.argv[2:]
    argv = program if program[0] == "python" else [sys.executable, "-u", *program]
    processes = []
    for rank in range(workers):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(workers)}
        processes.append(subprocess.Popen(argv, env={**os.environ, **ranks}))
    return next((code for code in [process.wait() for process in processes] if code), 0)


if __name__ == "__main__":
    sys.exit(main())
