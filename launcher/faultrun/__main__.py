"""The program. Signals are held back before anything slow is imported: none is lost while we start."""

from faultrun.workers import signals

signals.block()


def main() -> None:
    """Run the command line; returns only by ending the process."""
    from faultrun.cli.app import run_program  # noqa: PLC0415  nothing slow before the signals are held back

    run_program()


if __name__ == "__main__":
    main()
