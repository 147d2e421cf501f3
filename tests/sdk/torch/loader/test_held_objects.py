"""What is the script's own, and looked into, and what is a library's."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

from faultrun.sdk.torch.loader.held_objects import is_generator, walk
from faultrun.sdk.torch.state.boundary import Objects
from faultrun.sdk.torch.state.own_attributes import own_states

pytestmark = pytest.mark.torch

OWN = """
import numpy, torch

rng = numpy.random.default_rng(1)

class Noisy:
    def __getitem__(self, index):
        return index + rng.random()

class Lookahead(torch.optim.SGD):
    n = 0

    def step(self, closure=None):
        self.n += 1
        return super().step(closure)
"""


@pytest.fixture(params=["lightning_optim", "datasets", "transformers", "profile"])
def own(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module beside the script, called as a library is, or nearly so."""
    path = tmp_path / f"{request.param}.py"
    path.write_text(OWN)
    spec = spec_from_file_location(request.param, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, request.param, module)
    spec.loader.exec_module(module)
    return module


def test_a_module_beside_the_script_that_is_called_as_a_library_is_the_scripts_own(own: Any) -> None:
    assert own.rng in [one for _, one in walk(own.Noisy()) if is_generator(one)]
    optimizer = own.Lookahead([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    optimizer.step()
    (kept,) = own_states([optimizer]).values()
    assert kept.state_dict() == {"n": 1}
    assert Objects({"own": optimizer}).noted(), "each rank has its own"


def test_what_is_installed_is_a_librarys() -> None:
    rule = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    assert not own_states([rule])
    assert not Objects({"rule": torch.optim.lr_scheduler.StepLR(rule, 1)}).put_noted(b"")
