"""Tests of a framework's helper are collected where that framework is installed."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from faultrun.sdk.worker.worker import _forget
from support import preloaded

collect_ignore = [
    name
    for framework, names in {
        "torch": [
            "torch/group/test_buckets.py",
            "torch/state/test_files_of_before.py",
            "torch/state/test_shard_layouts.py",
            "torch/state/test_shards.py",
            "torch/state/test_state_dict.py",
            "torch/stay/test_refusals.py",
            "torch/stay/test_rejoin.py",
            "torch/test_dying_gasp.py",
            "torch/test_wrapped.py",
        ],
        "lightning": ["lightning/test_lightning.py"],
        "mindspore": ["mindspore/test_dying_gasp.py", "mindspore/test_parts.py"],
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
