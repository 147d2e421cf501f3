"""Another machine's clocks: every clock of a process, and of what it starts, is an hour ahead."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_AHEAD_S = 3600
_UNDER = ("unshare", "--time", f"--monotonic={_AHEAD_S}", f"--boottime={_AHEAD_S}")
_WALL_CLOCK = f"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {{
    int refused = syscall(SYS_clock_gettime, clock, now);
    if (!refused && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += {_AHEAD_S};
    return refused;
}}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {{
    struct timespec exact;
    int refused = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return refused;
}}
time_t time(time_t *there) {{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (there) *there = exact.tv_sec;
    return exact.tv_sec;
}}
"""
"""No namespace has a wall clock of its own. The times of files stay those of the file system."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The command to start a process under, and its environment; ``refused`` says why there is none."""

    under: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()
    refused: str = ""


def an_hour_ahead(folder: Path) -> Ahead:
    """Build what it takes in ``folder``."""
    compiler = shutil.which("cc")
    if compiler is None:
        return Ahead(refused="there is no compiler cc")
    try:
        tried = subprocess.run((*_UNDER, "true"), capture_output=True, check=False)
    except FileNotFoundError:
        return Ahead(refused="there is no program unshare")
    if tried.returncode != 0:
        return Ahead(refused="no namespace for clocks")
    library = folder / "wall_clock.so"
    command = (compiler, "-shared", "-fPIC", "-o", str(library), "-xc", "-")
    subprocess.run(command, input=_WALL_CLOCK, text=True, check=True, capture_output=True)
    return Ahead(_UNDER, (("LD_PRELOAD", str(library)),))
