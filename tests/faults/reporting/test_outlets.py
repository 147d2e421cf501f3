"""Who is told of a real run: commands, webhooks, metrics, JSON lines, the report. None disturbs it."""

import json
import signal
import socket
import sys
import urllib.request

import psutil
import pytest

from faultrun.platforms.this_machine import every_address
from support.machine.free_port import free_port
from support.machine.processes import wait_until
from support.machine.receiver import receiving
from support.places import TESTS
from support.runs import Launcher

COUNT = (sys.executable, str(TESTS / "faults" / "scripts" / "gasp_count.py"), "0")
ENV = {"FAULTRUN_REPORT": "True"}
HOOK = "/hook?token=secret"


def test_everybody_is_told_of_a_kill_a_restart_and_the_end(launcher: Launcher) -> None:
    port = free_port()
    with receiving() as receiver:
        run = launcher.command(
            "--worker_num=2", "--checkpoint_dir=ck", "--log_format=json",
            f"--webhook={receiver.address}{HOOK}",
            "--on_event=(cat; echo) >> told.jsonl; cat /proc/$$/cmdline > argv; echo $FAULTRUN_EVENT",
            f"--metrics_port={port}", "--metrics_file=m/run.prom", *COUNT, "waits", environ=ENV,
        ).trains((0, 1))  # fmt: skip
        run.event("FirstStep")
        scraped = wait_until(
            lambda: scrape(port, "faultrun_workers_up 2.0"), what="two workers in the metrics"
        )
        assert "faultrun_step 5.0" in scraped
        assert 'faultrun_phase{phase="running"} 1.0' in scraped
        run.kill(1)
        run.event("FirstStep", incarnation=1)  # else there is no recovery whose seconds are known
        (launcher.folder / "go_on").touch()
        assert run.ends() == 0
    kinds = ["incident", "restart", "finished"]
    told = [json.loads(line) for line in (launcher.folder / "told.jsonl").read_text().splitlines() if line]
    assert [one["kind"] for one in told] == kinds
    assert [json.loads(body)["kind"] for body in receiver.sent_to(HOOK)] == kinds
    assert told[0]["rank"] == 1
    assert told[0]["step"] == 5
    assert told[1]["resumed_step"] == 5
    assert told[2]["exit_code"] == 0
    assert (run.log_dir / "on_event.log").read_text().splitlines() == kinds
    left = (launcher.folder / "m" / "run.prom").read_text()
    assert "faultrun_incidents_total 1.0" in left
    assert "faultrun_exit_code 0.0" in left
    assert str(port) in (run.log_dir / "run.json").read_text()
    assert "secret" not in (run.log_dir / "run.json").read_text()
    assert receiver.address not in (run.log_dir / "run.json").read_text()
    assert "told.jsonl" not in (run.log_dir / "run.json").read_text()
    assert "told.jsonl" not in (launcher.folder / "argv").read_text(), "every user may read an argument"

    lines = [json.loads(line) for line in run.text.splitlines()]
    assert {line["host"] for line in lines} == {socket.gethostname()}
    assert [line["event"] for line in lines if line.get("run_s") is not None] == [
        line["event"] for line in run.events()
    ]
    assert any("incident 1" in line["message"] and line["level"] == "info" for line in lines)
    assert [line["level"] for line in lines if line["event"] == "WorkerExit"].count("error") == 2
    report = json.loads((run.log_dir / "report.json").read_text())
    assert report["incidents_total"] == 1
    assert abs(sum(report["spent"].values()) - report["wall_s"]) <= 0.01 * report["wall_s"]
    assert "report.html" in lines[-2]["message"]
    assert lines[-1]["message"] == report["savings"]["text"]


def scrape(port: int, wanted: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
    except OSError:
        return None
    return text if wanted in text else None


def test_a_webhook_that_never_answers_and_a_command_that_never_ends_change_nothing(
    launcher: Launcher,
) -> None:
    with receiving(at_once=False) as receiver:
        run = launcher.run(
            "sys.exit(3)", "--max_restarts=0", f"--webhook={receiver.address}{HOOK}", "--on_event=sleep 600",
        )  # fmt: skip
        assert run.ends() == 3
        told = receiver.sent_to(HOOK)
        assert told == [] or json.loads(told[0])["kind"] == "incident"
    assert "not done" in (run.log_dir / "on_event.log").read_text()


@pytest.mark.parametrize(
    ("around", "options", "address"),
    [
        ({}, (), "127.0.0.1"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, (), every_address()),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ("--metrics_addr=127.0.0.1",), "127.0.0.1"),
    ],
)
def test_metrics_are_for_this_machine_unless_told_or_in_a_pod(
    launcher: Launcher, around: dict[str, str], options: tuple[str, ...], address: str
) -> None:
    port = free_port()
    words = ("--worker_num=1", f"--metrics_port={port}", *options, *launcher.program("train()"))
    run = launcher.command(*words, environ=around).trains([0])
    wait_until(lambda: scrape(port, "faultrun_workers_up 1.0"), what="metrics")
    listening = [tuple(one.laddr) for one in psutil.net_connections("tcp") if one.status == "LISTEN"]
    assert [place for place in listening if place[-1] == port] == [(address, port)]
    run.signal(signal.SIGTERM)
    run.ends()


def test_a_port_that_is_taken_is_said_before_anything_starts(launcher: Launcher) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        run = launcher.run("train()", f"--metrics_port={port}")
        assert run.ends() == 64
    assert f"port {port} cannot be used" in run.text
    assert "try:     another port, or --metrics_file=FILE.prom" in run.text


def test_no_secret_among_the_arguments_is_shown_on_the_console_or_kept(launcher: Launcher) -> None:
    launcher.program("pass", "train.py")
    run = launcher.command(
        "--worker_num=1", str(launcher.folder / "train.py"), "--lr=0.1",
        "--secret-key=hush-1", "--password", "hush-2", "--db=postgres://me:hush-3@db/x",
    )  # fmt: skip
    assert run.ends() == 0
    kept = [path.read_text() for path in run.log_dir.rglob("*") if path.is_file()]
    assert "--lr=0.1" in run.text
    assert not [text for text in (run.text, *kept) if "hush" in text]
