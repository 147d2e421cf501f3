"""The program. Signals are held back before anything slow is imported: none is lost from here on.

What comes while the interpreter itself starts meets the mask that it was
started with: ``env --block-signal`` in front of us, for a PID 1.
"""

# The bare C module: the enums of ``signal`` cost more than all that came before.
import _signal  # type: ignore[import-not-found]

_signal.pthread_sigmask(
    _signal.SIG_BLOCK,
    (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCHLD),
)


def main() -> None:
    """Run the command line; returns only by ending the process."""
    _hold_standard_streams()
    from faultrun.cli.app import run_program  # noqa: PLC0415  nothing slow before the signals are held back

    run_program()


def _hold_standard_streams() -> None:
    """Have something behind 0, 1 and 2: our lock or journal would get the number of one that is closed."""
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:  # noqa: PERF203  the lowest number that is free is this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    main()
