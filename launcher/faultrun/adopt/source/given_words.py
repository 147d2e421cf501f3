"""What the words of a command give to the options of a script, as argparse reads them."""

from collections.abc import Sequence

from faultrun.adopt.source.python_code import PythonCode, ScriptOption


def given_text(args: Sequence[str], code: PythonCode, name: str) -> str | None:
    """The value of the option ``name`` as it is typed, even ``$OUT``; None: it is not given.

    The last one counts. ``NAME=value`` without dashes is a key of Hydra's.
    """
    option = code.option(name)
    if option is not None and option.flag:
        return None
    spellings = _spellings(name, option)
    others = {text for one in _beside(code, option) for text in _spellings(one.name, one)} - spellings
    for at in reversed(range(len(args))):
        word, equals, value = args[at].partition("=")
        if word in spellings or _shortens(word, spellings, others):
            if equals:
                return value
            if at + 1 < len(args) and not args[at + 1].startswith("--"):
                return args[at + 1]
        stuck = _stuck(args[at], spellings)
        if stuck:
            return stuck
    return next((one.partition("=")[2] for one in reversed(args) if one.startswith(f"{name}=")), None)


def _spellings(name: str, option: ScriptOption | None) -> set[str]:
    """How a person may type the option; of a field of a class as the parsers that read classes spell it."""
    if option is not None and option.spelled:
        declared = {option.spelled, *option.also}
        return declared | {f"--{name}", f"-{name}"} if len(name) > 1 else declared
    return {f"{dashes}{one}" for one in (name, name.replace("_", "-")) for dashes in ("-", "--")}


def _beside(code: PythonCode, option: ScriptOption | None) -> list[ScriptOption]:
    """The options of the same parser, as far as one file tells."""
    if option is None:
        return []
    return [one for one in code.options if one.module is option.module and one.name != option.name]


def _shortens(word: str, spellings: set[str], others: set[str]) -> bool:
    """Whether ``--ou`` can only mean ``--out``: argparse takes a beginning that no other option has."""
    if not word.startswith("--") or len(word) < len("--x") or word in others:
        return False
    begun = any(one.startswith(word) for one in spellings)
    return begun and not any(one.startswith(word) for one in others)


def _stuck(word: str, spellings: set[str]) -> str:
    """The value of ``-oVALUE``; "" for other words."""
    return word[2:].removeprefix("=") if not word.startswith("--") and word[:2] in spellings else ""
