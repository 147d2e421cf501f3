"""A worker that writes down all it can find out about itself; arguments: FILE [modules to import]."""

import atexit
import ctypes
import gc
import importlib
import json
import logging
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import warnings
from typing import Any

_PR_GET_PDEATHSIG = 2
_SYS_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
_OURS = ("FAULTRUN_",)


def kernel() -> dict[str, Any]:
    """What the kernel knows of this process."""
    signal_of_death = ctypes.c_int()
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(signal_of_death), 0, 0, 0)
    status = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith("Sig"))
    return {
        "session is its own": os.getsid(0) == os.getpid() == os.getpgid(0),
        "parent": os.getppid(),
        "dies with its parent": signal_of_death.value,
        "signals": {name: text.strip() for name, text in status.items() if name != "SigQ"},
        "limits": {
            name: resource.getrlimit(getattr(resource, name))
            for name in dir(resource)
            if name[:7] == "RLIMIT_"
        },
        "processors": sorted(os.sched_getaffinity(0)),
        "nice of its threads": sorted({os.getpriority(os.PRIO_PROCESS, thread) for thread in tasks()}),
        "io priority": libc.syscall(_SYS_IOPRIO_GET[os.uname().machine], 1, 0),
        "scheduler": os.sched_getscheduler(0),
        "out of memory": open("/proc/self/oom_score_adj").read(),
        "autogroup": open("/proc/self/autogroup").read().split()[1:]
        if os.path.exists("/proc/self/autogroup")
        else "",
        "umask": umask(),
        "folder": os.getcwd(),
        "descriptors": descriptors(),
        "threads": len(tasks()),
        "command line": open("/proc/self/cmdline", "rb").read().decode().split("\0"),
        "executable": os.readlink("/proc/self/exe"),
    }


def python() -> dict[str, Any]:
    """What Python knows of itself."""
    main = sys.modules["__main__"]
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "meta_path": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "path_hooks": len(sys.path_hooks),
        "flags": str(sys.flags),
        "main": {
            name: repr(getattr(main, name, "missing"))
            for name in ("__name__", "__file__", "__package__", "__cached__", "__doc__", "__annotations__")
        },
        "loader": type(getattr(main, "__loader__", None)).__name__,
        "spec": getattr(getattr(main, "__spec__", None), "name", None),
        "is main": main.__dict__ is globals(),
        "frames below main": frames(),
        "environment": dict(os.environ),
        "inherited by children": children(),
        "handlers": {
            int(number): repr(signal.getsignal(number)).split(" at ")[0] for number in signal.valid_signals()
        },
        "wakeup": signal.set_wakeup_fd(-1),
        "hooks": [
            sys.excepthook is sys.__excepthook__,
            sys.displayhook is sys.__displayhook__,
            sys.unraisablehook is sys.__unraisablehook__,
            sys.breakpointhook is sys.__breakpointhook__,
            threading.excepthook is threading.__excepthook__,
        ],
        "streams": [
            (
                stream.name,
                stream.encoding,
                stream.errors,
                stream.line_buffering,
                getattr(stream, "write_through", None),
                stream.isatty(),
            )
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "exit callbacks": atexit._ncallbacks(),
        "threads": [thread.name for thread in threading.enumerate()],
        "main thread": threading.current_thread() is threading.main_thread(),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "filters": [str(entry) for entry in warnings.filters],
        "root logger": (logging.root.level, len(logging.root.handlers), logging.root.manager.disable),
        "recursion": sys.getrecursionlimit(),
        "trace": (sys.gettrace(), sys.getprofile()),
        "ours": sorted(name for name in sys.modules if "standby" in name or name == "sitecustomize"),
    }


def torch() -> dict[str, Any]:
    """What torch knows, if it is here."""
    module = sys.modules.get("torch")
    if module is None:
        return {}
    import torch.distributed as dist

    net = module.nn.Linear(2, 2)
    module.optim.SGD(net.parameters(), lr=0.1)
    world = dist.distributed_c10d._world
    return {
        "groups": (dist.is_initialized(), world.group_count, len(world.pg_map), len(world.pg_names)),
        "threads": (module.get_num_threads(), module.get_num_interop_threads()),
        "interop threads may still be chosen": module.set_num_interop_threads(2),
        "dtype": str(module.get_default_dtype()),
        "grad": (module.is_grad_enabled(), module.is_inference_mode_enabled(), module.is_anomaly_enabled()),
        "deterministic": module.are_deterministic_algorithms_enabled(),
        "accelerator": module.cuda.is_initialized(),
        "device": str(module.get_default_device()),
    }


def mindspore() -> dict[str, Any]:
    """What MindSpore knows, if it is here; how it is set up, and what two steps of training come to."""
    ms = sys.modules.get("mindspore")
    if ms is None:
        return {}
    from mindspore import nn, runtime
    from mindspore._c_expression import DeviceManagerConf

    contexts = ("mode", "device_target", "device_id", "max_call_depth", "save_graphs", "enable_compile_cache")
    before = {
        "device chosen": DeviceManagerConf.get_instance().is_device_enable(),
        "contexts": {name: str(ms.get_context(name)) for name in contexts},
        "parallel": ms.get_auto_parallel_context("parallel_mode"),
        "seed": ms.get_seed(),
    }
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_recursion_limit(900)
    ms.set_device("CPU", 0)
    runtime.dispatch_threads_num(2)
    ms.set_seed(5)
    net = nn.SequentialCell(nn.Dense(4, 5, weight_init="normal"), nn.Dropout(p=0.5), nn.Dense(5, 2))
    loss = nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    train = nn.TrainOneStepCell(loss, nn.Adam(net.trainable_params()))
    train.set_train()
    images, labels = ms.Tensor([[1.0, 2.0, 3.0, 4.0]] * 2), ms.Tensor([0, 1], ms.int32)
    losses = [float(train(images, labels).asnumpy()).hex() for _ in range(2)]
    weights = [parameter.asnumpy().tobytes().hex() for parameter in net.trainable_params()]
    names = [parameter.name for parameter in train.trainable_params()]
    return {"before": before, "losses": losses, "weights": weights, "names": names}


def chance() -> list[Any]:
    """Random numbers, which must differ from process to process."""
    numbers: list[Any] = [random.random()]
    if "torch" in sys.modules:
        numbers += [sys.modules["torch"].rand(1).item(), sys.modules["torch"].initial_seed()]
    if "numpy" in sys.modules:
        numbers.append(float(sys.modules["numpy"].random.rand()))
    return numbers


def children() -> list[str]:
    """The environment of whatever this process starts, sorted."""
    printed = subprocess.run(["env", "-0"], capture_output=True, text=True, check=True).stdout
    return sorted(printed.split("\0"))


def tasks() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def frames() -> int:
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def descriptors() -> dict[str, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
    return {fd: name for fd, name in found.items() if "/proc/" not in name}


if __name__ == "__main__":
    early = {"kernel": kernel(), "python": python()}
    for name in sys.argv[2:]:
        importlib.import_module(name)
    fate = chance()
    late = {
        "torch": torch(),
        "mindspore": mindspore(),
        "kernel": kernel(),
        "exit callbacks": atexit._ncallbacks(),
        "environment": dict(os.environ),
    }
    with open(sys.argv[1], "w") as file:
        json.dump({"early": early, "late": late, "chance": fate}, file)
    print("written", flush=True)
    os.write(2, b"to descriptor 2\n")
