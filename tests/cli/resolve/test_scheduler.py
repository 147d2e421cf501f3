"""``--ms_scheduler``: who brings MindSpore's workers together, and when nobody is asked."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.errors import FaultrunError
from faultrun.frameworks.mindspore import PROVED, installed_version
from faultrun.model.spec.run_spec import Command, MsScheduler
from support.asking import plan, plan_of_several, refusal

INSTALLED = importlib.metadata.version("mindspore")
BUILTIN, NATIVE = MsScheduler.BUILTIN, MsScheduler.NATIVE


def chosen(*words: str, **environ: str) -> MsScheduler:
    return plan("--worker_num=2", *words, environ=environ).spec.rendezvous.ms_scheduler


@pytest.mark.skipif(INSTALLED not in PROVED, reason=f"MindSpore {INSTALLED} is not proved")
def test_auto_takes_ours_for_a_proved_version_on_cpu(mindspore_script: str) -> None:
    assert chosen(mindspore_script) is BUILTIN
    assert (
        chosen("--ms_scheduler=auto", "--master_addr=127.0.0.1", "--master_port=8118", mindspore_script)
        is BUILTIN
    )


def test_auto_leaves_devices_and_special_modes_to_mindspore(mindspore_script: str) -> None:
    assert chosen(mindspore_script, ASCEND_VISIBLE_DEVICES="0,1") is NATIVE
    assert chosen(mindspore_script, CUDA_VISIBLE_DEVICES="0,1") is NATIVE
    assert chosen(mindspore_script, MS_SERVER_NUM="1") is NATIVE
    assert chosen(mindspore_script, MS_ENABLE_RECOVERY="1") is NATIVE
    assert chosen("--master_addr=::1", mindspore_script) is NATIVE


def test_the_user_may_choose(mindspore_script: str) -> None:
    assert chosen("--ms_scheduler=native", mindspore_script) is NATIVE
    assert chosen("--ms-scheduler", "builtin", mindspore_script, ASCEND_VISIBLE_DEVICES="0,1") is BUILTIN
    assert chosen(mindspore_script, FAULTRUN_MS_SCHEDULER="native") is NATIVE


@pytest.mark.long
def test_an_unproved_version_is_mindspores_and_may_be_tried(tmp_path: Path, mindspore_script: str) -> None:
    python = other_python(tmp_path, "2.99.1")
    assert chosen(str(python), mindspore_script) is NATIVE
    settled = plan("--worker_num=2", "--ms_scheduler=builtin", str(python), mindspore_script)
    assert settled.spec.rendezvous.ms_scheduler is BUILTIN
    assert f"proved for MindSpore {' '.join(PROVED)}, and this is 2.99.1" in " ".join(settled.notes)


SEVERAL = ("--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:2379", "--rdzv-id=job")


def test_of_several_nodes_each_takes_ours_by_the_same_rules(mindspore_script: str) -> None:
    def of_several(*words: str, **environ: str) -> MsScheduler:
        told = plan_of_several(*SEVERAL, "--nproc-per-node=2", *words, mindspore_script, environ=environ)
        return told.rendezvous.ms_scheduler

    assert of_several() is (BUILTIN if INSTALLED in PROVED else NATIVE)
    assert of_several("--ms_scheduler=builtin") is BUILTIN
    assert of_several("--ms_scheduler=native") is NATIVE
    assert of_several("--local-addr=::1") is NATIVE
    assert of_several(ASCEND_VISIBLE_DEVICES="0,1") is NATIVE
    with pytest.raises(FaultrunError, match="listens on IPv4 only"):
        of_several("--ms_scheduler=builtin", "--local-addr=::1")


def test_on_one_node_ours_never_listens_but_on_loopback(mindspore_script: str) -> None:
    error = refusal("--worker_num=2", "--ms_scheduler=builtin", "--master_addr=::1", mindspore_script)
    assert "loopback only" in error.because


def test_a_wrong_name_and_a_framework_without_scheduler(script: str, mindspore_script: str) -> None:
    assert "none of auto, builtin, native" in refusal("--ms_scheduler=ours", mindspore_script).because
    settled = plan("--ms_scheduler=builtin", script)
    assert settled.spec.rendezvous.ms_scheduler is NATIVE
    assert any("--ms_scheduler" in note for note in settled.notes)


@pytest.mark.long
def test_the_version_is_that_of_the_workers_python(tmp_path: Path) -> None:
    def asked(program: str) -> str | None:
        command = Command(prefix=(program, "-u"), script_args=(), shown="")
        return installed_version(command, sys.executable, sys.path)

    assert asked(sys.executable) == INSTALLED
    assert asked(str(other_python(tmp_path, "2.3.0"))) == "2.3.0"
    assert asked(str(other_python(tmp_path, ""))) is None
    assert asked("bash") == INSTALLED
    nowhere = Command(prefix=("bash",), script_args=(), shown="")
    assert installed_version(nowhere, sys.executable, ("", "/nowhere", str(tmp_path))) is None


def other_python(tmp_path: Path, version: str) -> Path:
    """A Python of another environment, in which MindSpore has this version; none when it is empty."""
    home = tmp_path / f"env{version}"
    (home / "bin").mkdir(parents=True)
    if version:
        info = home / f"mindspore-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mindspore\nVersion: {version}\n")
    python = home / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={home} exec {os.path.realpath(sys.executable)} -S "$@"\n')
    python.chmod(0o755)
    assert subprocess.run([python, "-c", ""], check=False).returncode == 0
    return python
