"""The questions of ``faultrun adopt`` on a terminal: each is answered, agreed to with y, or left open."""

import sys
from collections.abc import Sequence

import click

from faultrun.adopt.launch import AdoptedOption
from faultrun.adopt.program import KnownProgram
from faultrun.adopt.questions import Question, answered
from faultrun.errors import UsageError
from faultrun.terminal import is_terminal

_INTRODUCTION = (
    "A restart goes on where training was if faultrun knows this, and no script tells it for sure.\n"
    "y takes what is offered, Enter leaves it open.\n"
)
_TRIES = 3
_STDIN, _STDERR = 0, 2


def can_ask() -> bool:
    """Whether a person can read a question on stderr and answer it on stdin."""
    return is_terminal(_STDIN) and is_terminal(_STDERR)


def answers_to(questions: Sequence[Question], program: KnownProgram) -> tuple[AdoptedOption, ...]:
    """Ask each of ``questions``; what is left open has no answer here."""
    if questions:
        _tell(_INTRODUCTION)
    found = (_answer(one, program) for one in questions)
    return tuple(one for one in found if one is not None)


def _answer(question: Question, program: KnownProgram) -> AdoptedOption | None:
    offer = f" [y: {question.offered}; {question.why}]" if question.offered else ""
    for _ in range(_TRIES):
        _tell(f"{question.asks}{offer} ")
        text = sys.stdin.readline()
        if not text.endswith("\n"):
            _tell("\n")  # the end of input, in the row of the question
        try:
            return answered(question, text, program)
        except UsageError as error:
            _tell(f"{error.what}: {error.because}; try {error.hint}\n")
    return None


def _tell(text: str) -> None:
    click.echo(text, err=True, nl=False)
