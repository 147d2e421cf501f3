"""What ``make test`` leaves out is named by tests that there are, and held by others that it runs."""

import ast
from functools import cache

import pytest

from support.places import ROOT
from tiers import EXHAUSTIVE, Left, is_exhaustive


@cache
def functions_in(file: str) -> frozenset[str]:
    """The functions of a file of tests, by their ids."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(f"{file}::{node.name}" for node in functions if node.name.startswith("test_"))


def named(pattern: str) -> frozenset[str]:
    """The functions that a pattern of the table means."""
    file, _, name = pattern.partition("::")
    function = name.partition("[")[0]
    return frozenset(one for one in functions_in(file) if not function or one == f"{file}::{function}")


@pytest.mark.parametrize("left", EXHAUSTIVE, ids=[left.tests[0].rpartition("/")[0] for left in EXHAUSTIVE])
def test_what_is_left_out_is_there_and_held_by_tests_that_are_not(left: Left) -> None:
    assert [one for one in (*left.tests, *left.held_by) if not named(one)] == []
    assert [one for one in left.held_by if all(map(is_exhaustive, named(one)))] == []


def test_a_parameter_is_part_of_an_id_and_a_longer_name_is_another_test() -> None:
    left = Left(tests=("t.py::test_a", "t.py::test_b[x", "u.py"), held_by=())
    assert [left.has(f"t.py::test_{name}") for name in ("a", "a[1]", "ab", "b", "b[x-1]", "b[y]")] == [
        *(True, True, False),
        *(False, True, False),
    ]
    assert left.has("u.py::test_c")
