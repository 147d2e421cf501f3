"""Tests of a framework's helper are collected where that framework is installed."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from faultrun.sdk.worker import _forget
from support import preloaded

collect_ignore = [
    name
    for framework, names in {
        "torch": [
            "test_buckets.py",
            "test_kept_files.py",
            "test_rejoin.py",
            "test_rejoin_refusals.py",
            "test_shard_layouts.py",
            "test_torch_gasp.py",
            "test_torch_shards.py",
            "test_torch_state.py",
            "test_torch_wrapped.py",
        ],
        "lightning": ["test_lightning.py"],
        "mindspore": ["test_mindspore_gasp.py", "test_mindspore_parts.py"],
    }.items()
    if find_spec(framework) is None
    for name in names
]


@pytest.fixture(scope="package", autouse=True)
def no_process_is_left_preloaded() -> Iterator[None]:
    yield
    preloaded.close_all()


@pytest.fixture(autouse=True)
def no_test_makes_this_process_a_worker_for_the_next() -> Iterator[None]:
    yield
    _forget()
