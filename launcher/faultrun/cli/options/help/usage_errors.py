"""What click says of a wrong command line, as what · because · try, with the word that was probably meant."""

import re

import click

from faultrun.cli.options.choices import likely, meant
from faultrun.cli.options.settings import OPTIONS
from faultrun.cli.removed_options import removed_option
from faultrun.errors import UsageError

_HELP = "faultrun --help-all lists every option; options of the script come after SCRIPT"
_RUN_OR_PROGRAM = ("run", "faultrun", None)
_NO_COMMAND = re.compile(r"no such command '([^']*)'", re.IGNORECASE)
_VALUE = re.compile(r"'(.*?)' is not", re.DOTALL)
_NOT_A_RANGE = re.compile(r"is not a valid (float|integer)( range)?")


def same_spelling(name: str) -> str:
    """An option's or verb's name as its table has it: ``--log-dir`` is ``log_dir``."""
    return name.lstrip("-").replace("-", "_")


def as_usage_error(error: click.UsageError, verb: str | None) -> UsageError:
    """Turn click's complaint into our three lines. ``verb``: what was called, where click does not say it."""
    command = error.ctx.command_path if error.ctx is not None else f"faultrun {verb or ''}".rstrip()
    about_run = (error.ctx.command.name if error.ctx is not None else verb) in _RUN_OR_PROGRAM
    if isinstance(error, click.NoSuchOption):
        typed, name = error.option_name, same_spelling(error.option_name)
        own = f"{command.removeprefix('faultrun ')} --{name}"
        gone = removed_option(own, typed, UsageError) or removed_option(name, typed, UsageError)
        if gone is not None:
            return gone
        return _unknown_option(error.option_name) if about_run else _unknown_of_verb(error, command)
    if isinstance(error, click.BadParameter) and not about_run and error.param is not None:
        return _bad_value(error, error.param, command)
    because = _phrase(error.format_message())
    if not about_run:
        return _wrong_verb(error, command, because)
    if isinstance(error, click.BadOptionUsage):
        key = same_spelling(error.option_name)
        hint = OPTIONS[key].use if key in OPTIONS else _HELP
        return UsageError(f"--{key} is written wrongly", because=because, hint=hint)
    return UsageError("the command line is wrong", because=because, hint=_HELP)


def _unknown_option(typed: str) -> UsageError:
    match = likely(same_spelling(typed), OPTIONS)
    hint = f"did you mean {OPTIONS[match].spelled}?  (e.g. {OPTIONS[match].use})" if match else _HELP
    because = "neither faultrun nor msrun nor torchrun has it"
    return UsageError(f"unknown option {typed}", because=because, hint=hint)


def _unknown_of_verb(error: click.NoSuchOption, command: str) -> UsageError:
    known = [] if error.ctx is None else [name for one in error.ctx.command.params for name in one.opts]
    match = likely(error.option_name, error.possibilities or known)
    because = f"`{command}` does not have it"
    if match is None and same_spelling(error.option_name) in OPTIONS:
        because = f"it is an option of a run; `{command}` does not have it"
    hint = f"did you mean {match}?" if match else f"{command} --help"
    return UsageError(f"unknown option {error.option_name}", because=because, hint=hint)


def _bad_value(error: click.BadParameter, param: click.Parameter, command: str) -> UsageError:
    """A value that is not one of the known ones, or no number."""
    whole = error.format_message() if isinstance(error, click.MissingParameter) else error.message
    said = _NOT_A_RANGE.sub("is not a number", _phrase(whole))
    typed = _VALUE.match(error.message)
    name = next(iter(param.opts), param.human_readable_name)
    if not isinstance(param, click.Option) or typed is None:
        return UsageError(f"`{command}` is written wrongly", because=said, hint=f"{command} --help")
    known = [str(one) for one in param.type.choices] if isinstance(param.type, click.Choice) else []
    because = said + meant(typed[1], known)
    hint = f"{name}={likely(typed[1].lower(), known) or known[0]}" if known else f"{command} --help"
    return UsageError(f"{name}={typed[1]} cannot be used", because=because, hint=hint)


def _wrong_verb(error: click.UsageError, command: str, because: str) -> UsageError:
    group = error.ctx.command if error.ctx is not None else None
    known = list(group.commands) if isinstance(group, click.Group) else []
    unknown = _NO_COMMAND.search(because)
    if known and unknown:
        match = likely(unknown[1], known)
        because = f"its commands are {', '.join(known)}"
        hint = f"{command} {match}" if match else f"{command} --help"
        return UsageError(f"`{command}` has no command {unknown[1]}", because=because, hint=hint)
    if known:
        because = f"its commands are {', '.join(known)}"
        return UsageError(f"`{command}` needs a command", because=because, hint=f"{command} --help")
    return UsageError(f"`{command}` is written wrongly", because=because, hint=f"{command} --help")


def _phrase(said: str) -> str:
    said = said.rstrip(".")
    return said[:1].lower() + said[1:]
