"""What a small training can be told. Standard library only."""

import argparse


def options(**usual: object) -> argparse.ArgumentParser:
    """A parser with an option for each name, which is of the type of what it usually is."""
    parser = argparse.ArgumentParser()
    for name, value in usual.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser
