"""Which value of a call becomes which parameter of a function, by Python's own rules; nothing is called."""

import ast

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters(function: Function) -> list[str]:
    """The names of the parameters that are given one by one."""
    arguments = function.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def given_to(call: ast.Call, name: str, function: Function) -> ast.expr | None:
    """What a call gives to the parameter ``name``; None where that is nothing, or hidden by ``*``."""
    named = next((one.value for one in call.keywords if one.arg == name), None)
    if named is not None:
        return named
    positions = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    is_method = positions[:1] in (["self"], ["cls"])
    at = positions.index(name) - is_method if name in positions else len(call.args)
    if at >= len(call.args) or any(isinstance(one, ast.Starred) for one in call.args[: at + 1]):
        return None
    return call.args[at]


def default_of(name: str, function: Function) -> ast.expr | None:
    """The default of the parameter ``name``."""
    arguments = function.args
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    last = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    named = dict(zip([one.arg for one in arguments.kwonlyargs], arguments.kw_defaults, strict=True))
    return last.get(name) or named.get(name)
