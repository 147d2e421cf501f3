"""Words that workers leave, and what they mean."""

from typing import Any

import pytest

from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.core.diagnosis.signatures import class_of, recognise
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.evidence import FaultClass, Finding, Raised, Row

FAILED = Exited(code=1)


def recognised(*about: Any) -> Finding:
    found = recognise(*about)
    assert found is not None
    return found


def named(text: str) -> str:
    kind, _, message = text.partition(": ")
    found = recognise(ROWS, FAILED, Raised(kind=kind, message=message), [])
    return found.name if found is not None else ""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "device-memory"),
        ("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB", "device-memory"),
        ("RuntimeError: aclrtMalloc failed, error code is 207018", "ascend-memory"),
        ("MemoryError: ", "host-memory"),
        ("RuntimeError: unable to write to file </torch_5_1_0> shm", "shared-memory"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", "shared-memory"),
        ("OSError: [Errno 28] No space left on device: '/ckpt/a'", "disk-full"),
        ("OSError: [Errno 122] Disk quota exceeded", "disk-full"),
        ("RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0", "disk-full"),
        ("OSError: [Errno 24] Too many open files: '/dev/null'", "descriptors"),
        ("RuntimeError: can't start new thread", "processes"),
        ("OSError: [Errno 27] File too large", "file-size"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "xid"),
        ("RuntimeError: NPU function error: UCE ERROR., error code is 507053", "ascend-hardware"),
        ("OSError: [Errno 5] Input/output error: '/nfs/data'", "storage-io"),
        ("OSError: [Errno 116] Stale file handle", "stale-handle"),
        ("DistNetworkError: The server socket has failed to listen: EADDRINUSE", "address-in-use"),
        ("gaierror: [Errno -3] Temporary failure in name resolution", "name-service"),
        ("RuntimeError: could not reach the license server", "licence"),
        ("ConnectionError: object store unavailable: 503 Slow Down", "download"),
        ("RuntimeError: upload failed: 502 Bad Gateway", "download"),
        ("ReadTimeout: HTTPSConnectionPool(host='hub')", "download"),
        ("ConnectTimeoutError: Connect timeout on endpoint URL", "download"),
        ("gaierror: [Errno -5] No address associated with hostname", "download"),
        ("SSLEOFError: EOF occurred in violation of protocol (_ssl.c:1007)", "download"),
        ("JSONDecodeError: Expecting ',' delimiter: line 1 column 12 (char 11)", "half-file"),
        ("BadZipFile: File is not a zip file", "half-file"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/mnt/data/a'", "file"),
        ("OSError: [Errno 112] Host is down: '/mnt/data/a'", "file"),
        ("ModuleNotFoundError: No module named 'nope'", "import"),
        ("SyntaxError: invalid syntax", "syntax"),
        ("RuntimeError: [../gloo/transport/tcp/pair.cc:537] Connection closed by peer", "peer-closed"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "peer-closed"),
        ("DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251", "nccl"),
        ("DistStoreError: Timed out after 61 seconds waiting for clients. 3/4 joined", "rendezvous"),
        ("RuntimeError: Launch kernel failed, name:Default/grad_reducer/AllReduce-op2", "mindspore-peer"),
        ("RuntimeError: EI0006: Getting socket times out. Reason: 1", "hccl"),
        ("ValueError: step 507053 is odd, sample 207001", ""),
        ("ValueError: 503 is no class label", ""),
        ("AssertionError: ", ""),
    ],
)
def test_the_table_knows_the_failures_of_the_field(text: str, name: str) -> None:
    assert named(text) == name
    assert named(text) == getattr(recognise(ROWS, FAILED, None, ["step 1", text, "step 2"]), "name", name)


def test_every_row_has_a_name_of_its_own_a_source_and_something_to_say() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.says and row.source for row in ROWS)


def test_the_exception_is_asked_before_the_log_and_trouble_that_was_got_over_is_no_cause() -> None:
    lines = ["Connection reset by peer, retrying", "HTTP Error 503, retrying"]
    assert recognise(ROWS, FAILED, Raised(kind="ValueError", message="x"), lines) is None
    broken = [*lines, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."]
    found = recognised(ROWS, FAILED, Raised(kind="ValueError", message="x"), broken)
    assert found.fault_class is FaultClass.HARDWARE


def test_without_an_exception_the_newest_line_counts_and_a_lost_peer_only_where_nothing_else_does() -> None:
    lines = ["OSError: [Errno 28] No space left on device", "Connection reset by peer"]
    assert recognised(ROWS, FAILED, None, lines).name == "disk-full"
    alone = recognised(ROWS, Signaled(signum=6), None, lines[1:])
    assert alone.fault_class is FaultClass.CONSEQUENCE


def test_a_thread_that_outlived_the_script_is_told_from_an_abort_for_a_reason() -> None:
    found = recognised(ROWS, Signaled(signum=6), None, ["terminate called without an active exception"])
    assert (found.name, found.fault_class) == ("thread-at-exit", FaultClass.TRANSIENT)
    assert "destroy_process_group" in found.hint
    thrown = "terminate called after throwing an instance of 'std::logic_error'"
    assert recognise(ROWS, Signaled(signum=6), None, [thrown]) is None


RETRY = (
    "[WARNING] DISTRIBUTED(32080,7f2ba0406b80,python):2026-11-22-02:33:51.132.163 [graph_node.cc:392] "
    "ReconnectWithTimeoutWindow] Failed to register and try to reconnect to the meta server."
)


def test_a_warning_of_a_library_that_got_over_it_makes_no_follower() -> None:
    assert recognise(ROWS, FAILED, None, [RETRY, "step 4"]) is None
    failed = recognised(ROWS, FAILED, None, [RETRY.replace("WARNING", "ERROR"), "step 4"])
    assert failed.fault_class is FaultClass.CONSEQUENCE


def test_a_warning_still_tells_of_a_device_and_what_the_user_asked_for() -> None:
    assert recognised(ROWS, FAILED, None, [f"{RETRY} No space left on device"]).name == "disk-full"
    own = Row(
        name="ours", fault_class=FaultClass.TRANSIENT, pattern="try to reconnect", says="again", source=""
    )
    assert recognised((own, *ROWS), FAILED, None, [RETRY]).name == "ours"


@pytest.mark.parametrize("signum", [9, 11])
def test_who_is_killed_has_no_last_words(signum: int) -> None:
    assert recognise(ROWS, Signaled(signum=signum), None, ["Connection reset by peer, retrying"]) is None


OVERCOME = ["WARNING: CUDA out of memory in step 5, batch 64 -> 32", "step 45 loss 1.0"]


@pytest.mark.parametrize(
    ("status", "raised"),
    [(Signaled(signum=9), None), (FAILED, Raised(kind="ValueError", message="label 17 is out of range"))],
)
def test_memory_that_ran_out_long_ago_explains_no_program_error_and_no_kill(
    status: ExitStatus, raised: Raised | None
) -> None:
    assert recognise(ROWS, status, raised, OVERCOME) is None


def test_a_files_end_is_no_peers() -> None:
    assert named("EOFError: ") == "peer-closed"
    for words in ("Ran out of input", "Compressed file ended before the end-of-stream marker was reached"):
        assert named(f"EOFError: {words}") != "peer-closed"
    assert named("RuntimeError: unexpected EOF, expected 9 more bytes. The file might be corrupted.") == ""


def test_own_rows_come_first() -> None:
    own = Row(
        name="ours", fault_class=FaultClass.TRANSIENT, pattern="No space", says="the quota robot", source=""
    )
    found = recognised((own, *ROWS), FAILED, None, ["OSError: [Errno 28] No space left on device"])
    assert found.name == "ours"


def test_a_row_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="ours: '\\(' is not a regular expression"):
        Row(name="ours", fault_class=FaultClass.UNKNOWN, pattern="(", says="", source="")


def test_signals_from_outside_are_transient_and_own_faults_are_not() -> None:
    assert class_of(Signaled(signum=9)) is FaultClass.TRANSIENT
    assert class_of(Signaled(signum=11)) is FaultClass.UNKNOWN
    assert class_of(Exited(code=120)) is FaultClass.RESOURCE
    assert class_of(Exited(code=3)) is FaultClass.UNKNOWN


def test_an_exception_that_wraps_a_networks_is_weather_and_a_bug_met_while_handling_one_is_a_bug() -> None:
    came_from = ("ConnectionError: reset", "OSError: [Errno 101] Network is unreachable")
    wrapped = Raised(kind="RuntimeError", message="no batch", came_from=came_from)
    found = recognised(ROWS, FAILED, wrapped, [])
    assert (found.name, found.fault_class) == ("download", FaultClass.TRANSIENT)
    assert recognise(ROWS, FAILED, Raised(kind="KeyError", message="'x'", came_from=came_from), []) is None
