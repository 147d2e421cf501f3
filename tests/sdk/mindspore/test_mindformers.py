"""The callback by its name in a YAML of MindFormers.

The package is not installed here: its registry is stood in for by the documented calls
(``tools/register/register.py`` of 2.1.0), as far as ``build_callback`` uses them.
"""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]


class Register:
    """``register_cls`` keeps by alias, ``get_instance_from_cfg`` calls what is kept under ``type``."""

    registry: dict[str, dict[str, Callable[..., object]]] = {}  # noqa: RUF012 - as theirs

    @classmethod
    def register_cls(
        cls, register_class: Callable[..., object], module_type: str = "tools", alias: str | None = None
    ) -> Callable[..., object]:
        cls.registry.setdefault(module_type, {})[alias or register_class.__name__] = register_class
        return register_class

    @classmethod
    def get_instance_from_cfg(cls, cfg: dict[str, object], module_type: str) -> object:
        arguments = dict(cfg)
        return cls.registry[module_type][str(arguments.pop("type"))](**arguments)


class CallbackKind:
    CALLBACK = "callback"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Register]]:
    theirs = ModuleType("mindformers.tools.register")
    theirs.__dict__.update(MindFormerRegister=Register, MindFormerModuleType=CallbackKind)
    for name in ("mindformers", "mindformers.tools"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    monkeypatch.delitem(sys.modules, "faultrun.sdk.mindformers", raising=False)
    import_module("faultrun.sdk.mindformers")
    yield Register
    del sys.modules["faultrun.sdk.mindformers"]


def test_a_yaml_names_it(register: type[Register], tmp_path: Path) -> None:
    from faultrun.sdk.mindspore import DyingGasp

    named: dict[str, object] = {"type": "DyingGasp", "prefix": "qwen3", "directory": str(tmp_path)}
    assert isinstance(register.get_instance_from_cfg(named, CallbackKind.CALLBACK), DyingGasp)


@pytest.mark.usefixtures("register")
def test_every_rank_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK_ID", "3")
    assert import_module("faultrun.sdk.mindformers").folder_of_rank(tmp_path) == tmp_path / "rank_3"
