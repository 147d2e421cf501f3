"""Tests of a framework's helper are collected where that framework is installed."""

from importlib.util import find_spec

collect_ignore = [
    name
    for framework, names in {
        "torch": ["test_torch_gasp.py", "test_torch_state.py"],
        "mindspore": ["test_mindspore_gasp.py", "test_mindspore_parts.py"],
    }.items()
    if find_spec(framework) is None
    for name in names
]
