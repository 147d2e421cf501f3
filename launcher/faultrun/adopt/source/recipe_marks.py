"""Training codes that no import tells: their recipe is known by options, keys and names in the source.

The codes are those of the seed documents; each recipe says in its own comment what it knows.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from faultrun.adopt.source.python_code import PythonCode
from faultrun.adopt.source.trace import KeyLookUp


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """All of these must be there: declared options, keys of the configuration, texts, calls, a package.

    ``texts`` are regular expressions of whole literals.
    """

    recipe: str
    options: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    package: str = ""


_MARKS = (
    _Mark(recipe="mindio-ttp", calls=("TFTRegister",), options=("is_recover",)),
    _Mark(
        recipe="pangu-alpha", options=("save_checkpoint_path", "strategy_load_ckpt_path"), package="mindspore"
    ),
    _Mark(
        recipe="mindspore-resnet",
        keys=("pre_trained", "has_trained_epoch", "checkpoint_path"),
        package="mindspore",
    ),
    _Mark(
        recipe="pytorch-resnet50",
        options=("resume",),
        texts=(r"model_best\.pth\.tar", r"(\./)?rank(_|\*)"),
        package="torch",
    ),
    _Mark(
        recipe="tensorflow-resnet50", options=("config_file",), texts=("restore_path",), package="tensorflow"
    ),
)


def marked_recipe(
    code: PythonCode, keys: KeyLookUp, imports: Callable[[str], bool]
) -> tuple[str, str] | None:
    """The recipe's name and what shows it, with its line; ``imports`` says whether a package is imported."""
    for mark in _MARKS:
        if mark.package and not imports(mark.package):
            continue
        declared = [option for name in mark.options if (option := code.option(name)) is not None]
        found_keys = [key for name in mark.keys if (key := keys(name)) is not None]
        texts = [where for text in mark.texts if (where := _text(code, text))]
        calls = [where for name in mark.calls if (where := _call(code, name))]
        whole = (len(declared), len(found_keys), len(texts), len(calls))
        if whole == (len(mark.options), len(mark.keys), len(mark.texts), len(mark.calls)):
            shown = [
                *(f"--{one.name} ({one.where})" for one in declared),
                *(f"{name} ({one[2]})" for name, one in zip(mark.keys, found_keys, strict=True)),
                *(f"{text} ({where})" for text, where in zip(mark.texts, texts, strict=True)),
                *(f"{name} ({where})" for name, where in zip(mark.calls, calls, strict=True)),
            ]
            return mark.recipe, f"known by {', '.join(shown[:3])}"
    return None


def _text(code: PythonCode, text: str) -> str:
    for module in code.modules:
        for node in module.nodes:
            match node:
                case ast.Constant(value=str(found)) if re.fullmatch(text, found):
                    return module.where(node)
                case _:
                    pass
    return ""


def _call(code: PythonCode, name: str) -> str:
    return next((module.where(call) for module, call in code.calls_of(name)), "")
