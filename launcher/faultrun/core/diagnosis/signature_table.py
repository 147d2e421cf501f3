"""The table of known failures: data, each row with its source. Order matters, the first match wins.

Users add rows by file (``--signatures``), which are asked before these.
"""

from faultrun.model.observed.evidence import FaultClass, Row

_DETERMINISTIC = FaultClass.DETERMINISTIC
_TRANSIENT = FaultClass.TRANSIENT
_RESOURCE = FaultClass.RESOURCE
_PREEMPTION = FaultClass.PREEMPTION
_HARDWARE = FaultClass.HARDWARE
_CONSEQUENCE = FaultClass.CONSEQUENCE

_CODE = r"(?i:code|ret|result)\D{0,8}"
"""What precedes an error code in messages of CANN, MindSpore and torch_npu; a bare number proves nothing."""

_ERRNO = "errno(3), strerror of glibc"
_PYTHON = "docs.python.org/3/library/exceptions.html"
_ACL = "acl_base_rt.h of CANN (hicann/runtime): ACL_ERROR_RT_*"
_HCCL = "error_manager of CANN: HCCL Errors, EI0001-EI0014"
_XID = "docs.nvidia.com/deploy/xid-errors"
_NCCL = "docs.nvidia.com/deeplearning/nccl: ncclResult_t; torch ProcessGroupNCCL.cpp"
_GLOO = "gloo transport/tcp/pair.cc; torch ProcessGroupGloo.cpp"
_MINDSPORE = "MindSpore 2.10 distributed/cluster, runtime/collective (seen on CPU)"


def _row(name: str, fault_class: FaultClass, pattern: str, says: str, source: str, hint: str = "") -> Row:
    return Row(name=name, fault_class=fault_class, pattern=pattern, says=says, source=source, hint=hint)


NOT_LOADABLE = "weights-only"
"""What torch refuses to load by its nature, from whichever file."""

ROWS: tuple[Row, ...] = (
    _row(
        NOT_LOADABLE,
        _DETERMINISTIC,
        r"Weights only load failed",
        "torch.load takes nothing but tensors and plain values from a file unless it is told to",
        "torch/serialization.py: weights_only, True by default since 2.6",
        "torch.load(..., weights_only=False) for files of your own, or torch.serialization.add_safe_globals",
    ),
    # Memory, disk, descriptors.
    _row(
        "device-memory",
        _RESOURCE,
        r"CUDA out of memory|OutOfMemoryError: (CUDA|HIP|NPU|XPU)|NPU out of memory"
        r"|CUDA_ERROR_OUT_OF_MEMORY|Malloc device memory failed|Device\(id:\d+\) memory isn't enough",
        "device memory is full",
        "torch c10/cuda/CUDACachingAllocator.cpp; MindSpore ascend_memory_manager",
        "a smaller batch; see whether another process holds the device",
    ),
    _row(
        "ascend-memory",
        _RESOURCE,
        _CODE + r"(207001|207018)\b|\bEL0004\b|ACL_ERROR_RT_DEVI[CD]E_OOM",
        "device memory is full",
        _ACL,
        "a smaller batch; npu-smi info shows who holds the device",
    ),
    _row(
        "host-memory",
        _RESOURCE,
        r"MemoryError|Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator: (can't|not enough)",
        "memory is full",
        f"{_PYTHON}; {_ERRNO} ENOMEM; torch c10/core/impl/alloc_cpu.cpp",
        "fewer data loader workers, or a larger memory limit",
    ),
    _row(
        "shared-memory",
        _RESOURCE,
        r"out of shared memory|insufficient shared memory|unable to (open|mmap|resize|write).{0,40}shm"
        r"|/dev/shm.*No space|No space left on device.*(/dev/shm|/torch_|/nccl-)"
        r"|DataLoader worker.*Bus error",
        "shared memory is full",
        "torch utils/data/_utils/signal_handling.py, ATen/MapAllocator.cpp; NCCL shmutils.cc",
        "a larger /dev/shm: emptyDir with medium Memory, docker --shm-size",
    ),
    _row(
        "disk-full",
        _RESOURCE,
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]"
        r"|PytorchStreamWriter failed writing|unexpected pos \d+ vs",
        "the disk is full",
        f"{_ERRNO} ENOSPC, EDQUOT; torch caffe2/serialize/inline_container.cc",
        "df -h and df -i of the checkpoint folder and of the log_dir",
    ),
    _row(
        "descriptors",
        _RESOURCE,
        r"Too many open files|\[Errno 24\]|\[Errno 23\]|received 0 items of ancdata",
        "no file descriptor is left",
        f"{_ERRNO} EMFILE, ENFILE; torch multiprocessing, sharing strategy file_descriptor",
        "ulimit -n 65536; torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    _row(
        "processes",
        _RESOURCE,
        r"Resource temporarily unavailable|can't start new thread|BlockingIOError: \[Errno 11\].*fork"
        r"|pthread_create failed",
        "no process or thread can be started",
        f"{_ERRNO} EAGAIN of fork(2) and pthread_create(3)",
        "a larger pids limit of the container, or ulimit -u",
    ),
    _row(
        "file-size",
        _RESOURCE,
        r"File too large|\[Errno 27\]",
        "a file may not grow further",
        f"{_ERRNO} EFBIG",
        "ulimit -f",
    ),
    # Hardware.
    _row(
        "xid",
        _HARDWARE,
        r"Xid \([^)]*\): (48|61|62|63|64|74|79|92|94|95|119|120)\b|GPU has fallen off the bus"
        r"|uncorrectable (NVLink|ECC) error|CUDA_ERROR_ECC_UNCORRECTABLE"
        r"|CUDA error: (uncorrectable|hardware)",
        "the device is faulty",
        _XID,
        "drain the machine and reset the device",
    ),
    _row(
        "ascend-hardware",
        _HARDWARE,
        _CODE + r"(5070(10|53|54|55|56|57)|507899)\b|UCE ERROR|HBM MULTI BIT ECC"
        r"|ACL_ERROR_RT_(DEVICE_MEM|LINK)_ERROR",
        "the device is faulty",
        _ACL,
        "npu-smi info -t health; let the job be placed elsewhere",
    ),
    _row(
        "storage-io",
        _TRANSIENT,
        r"Input/output error|\[Errno 5\]|Remote I/O error|Read-only file system|\[Errno 30\]",
        "storage fails",
        f"{_ERRNO} EIO, EREMOTEIO, EROFS",
        "dmesg; the state of the file server",
    ),
    # Told to leave.
    _row(
        "slurm-preempted",
        _PREEMPTION,
        r"CANCELLED AT .* DUE TO (PREEMPTION|TIME LIMIT|NODE FAILURE)",
        "the scheduler took the machine away",
        "slurmstepd; slurm.schedmd.com/preempt.html",
    ),
    # Passing trouble.
    _row(
        "address-in-use",
        _TRANSIENT,
        r"Address already in use|\[Errno 98\]|EADDRINUSE|address already in use",
        "a port was taken by another program",
        f"{_ERRNO} EADDRINUSE; torch TCPStore",
    ),
    _row(
        "stale-handle",
        _TRANSIENT,
        r"Stale file handle|\[Errno 116\]|Transport endpoint is not connected|\[Errno 107\]"
        r"|Cannot send after transport endpoint shutdown|\[Errno 108\]",
        "a network file system lost a file",
        f"{_ERRNO} ESTALE, ENOTCONN, ESHUTDOWN (NFS, Lustre)",
    ),
    _row(
        "name-service",
        _TRANSIENT,
        r"Temporary failure in name resolution|Name or service not known|EAI_AGAIN",
        "a host name could not be resolved",
        "getaddrinfo(3)",
    ),
    _row(
        "licence",
        _TRANSIENT,
        r"(?i)licen[cs]e (server|checkout|not available)|FlexNet|lmgrd",
        "a licence was not given",
        "FlexNet Publisher, License Administration Guide",
    ),
    _row(
        "download",
        _TRANSIENT,
        r"HTTP Error (429|5\d\d)|(429|5\d\d) (Client|Server) Error|ReadTimeoutError|Max retries exceeded"
        r"|\b(429 Too Many|50[0-4] (Internal|Bad Gateway|Slow Down|Service Unavailable|Gateway Time))"
        r"|^(HTTPError|URLError|ContentTooShortError|RemoteDisconnected|IncompleteRead|BadStatusLine"
        r"|RequestException|ConnectionError|(Connect|Read|Pool|Connection)?Timeout|timeout|ProxyError|SSL\w*Error"
        r"|ChunkedEncodingError|NewConnectionError|MaxRetryError|ProtocolError|NameResolutionError"
        r"|ClientError|EndpointConnectionError|ConnectTimeoutError|ConnectionClosedError|HTTPClientError"
        r"|BotoCoreError|ResponseStreamingError|HfHubHTTPError|LocalEntryNotFoundError"
        r"|Client(Connector|OS|Payload|Response)\w*Error|ServerDisconnectedError|ConnectError|ReadError"
        r"|RemoteProtocolError|gaierror|herror|\w*RpcError|ServiceUnavailable|DeadlineExceeded"
        r"|TooManyRequests|InternalServerError|GatewayTimeout)\b",
        "a service on the network did not answer",
        "urllib, http, ssl, socket, requests, urllib3, httpx, aiohttp, botocore, grpc, huggingface_hub",
    ),
    # The program is wrong.
    _row(
        "import",
        _DETERMINISTIC,
        r"^(ModuleNotFoundError|ImportError)\b|error while loading shared libraries",
        "something cannot be imported",
        f"{_PYTHON}; ld.so(8)",
        "faultrun doctor; is it the right environment?",
    ),
    _row(
        "syntax",
        _DETERMINISTIC,
        r"^(SyntaxError|IndentationError|TabError)\b",
        "the script is not valid Python",
        _PYTHON,
    ),
    _row(
        "usage",
        _DETERMINISTIC,
        r"error: (unrecognized arguments|the following arguments are required|argument .*:|ambiguous option)"
        r"|^Error: (No such option|Invalid value for '|Got unexpected extra argument)|No such option: -"
        r"|Unknown command line flag|option -\S+ (not recognized|requires argument)|unrecognized option '-"
        r"|Could not consume arg: -|arguments are not used by the HfArgumentParser|Could not override '",
        "the script does not know its arguments",
        "argparse, click, absl, getopt, fire, transformers, hydra",
        "faultrun --dry-run shows what each rank gets",
    ),
    _row(
        "no-script",
        _DETERMINISTIC,
        r"can't open file '.*': \[Errno 2\]|No module named \S+$",
        "the script is not there",
        "CPython Modules/main.c",
    ),
    _row(
        "illegal-device-access",
        FaultClass.UNKNOWN,
        r"device-side assert triggered|an illegal memory access was encountered|"
        + _CODE
        + r"5070(14|15|17|34)\b",
        "a kernel failed on the device",
        f"cudaError_t; {_ACL}",
        "CUDA_LAUNCH_BLOCKING=1, ASCEND_LAUNCH_BLOCKING=1 name the operator",
    ),
    _row(
        "hccl-arguments",
        _DETERMINISTIC,
        r"\bEI000(3|4|5)\b",
        "ranks call collectives differently, or the rank table is wrong",
        _HCCL,
    ),
    _row(
        "thread-at-exit",
        _TRANSIENT,
        r"^terminate called without an active exception",
        "a thread of a library still ran when the process took itself down",
        f"std::terminate of libstdc++, from ~thread (seen with torch 2.13 on CPU); {_GLOO}",
        "torch.distributed.destroy_process_group(), then faultrun.sdk.done(), at the end of the script",
    ),
    # What a survivor says when a peer is gone.
    _row(
        "peer-closed",
        _CONSEQUENCE,
        r"Connection (reset|closed) by peer|\[Errno 104\]|Broken pipe|\[Errno 32\]|Connection refused"
        r"|\[Errno 111\]|Connection(Reset|Refused|Aborted)Error|BrokenPipeError|\bEOFError(: ?)?$",
        "the connection to another rank broke",
        f"{_ERRNO} ECONNRESET, EPIPE, ECONNREFUSED; {_GLOO}; multiprocessing/connection.py",
    ),
    _row(
        "gloo",
        _CONSEQUENCE,
        r"\[[^\]]*gloo/[^\]]*\]|Gloo (connectFullMesh|AllReduce|AllGather) failed"
        r"|Application timeout caused pair",
        "a collective broke",
        _GLOO,
    ),
    _row(
        "nccl",
        _CONSEQUENCE,
        r"NCCL (error|WARN)|ncclRemoteError|ncclSystemError|ncclInternalError|Watchdog caught collective"
        r"|NCCL communicator was aborted|DistBackendError",
        "a collective broke",
        _NCCL,
    ),
    _row(
        "rendezvous",
        _CONSEQUENCE,
        r"DistStoreError|DistNetworkError|Timed out after \d+ seconds waiting for clients|Socket Timeout"
        r"|wait timeout after|Broken rendezvous|failed to (recv|send), got",
        "the other ranks did not come",
        "torch distributed/c10d/TCPStore.cpp, socket.cpp",
    ),
    _row(
        "hccl",
        _CONSEQUENCE,
        _CODE + r"50790(1|4)\b|\bEI000(2|6)\b|HcclCommInitRootInfo|HCCL_E_(TIMEOUT|REMOTE)",
        "a collective broke",
        _HCCL,
    ),
    _row(
        "mindspore-peer",
        _CONSEQUENCE,
        r"Ring (ReduceScatter|AllGather).*failed|Launch kernel failed.*AllReduce"
        r"|Failed to (register|unregister|connect to) .*(scheduler|compute graph node|meta server)"
        r"|Kill this process|The node \S+ is timed out|compute graph node.*timed? ?out",
        "another rank or the scheduler did not answer",
        _MINDSPORE,
    ),
    _row("timeout", _CONSEQUENCE, r"^TimeoutError\b", "waiting for something took too long", _PYTHON),
    # Whether the program, its data or a file of its own is wrong cannot be told from it.
    _row(
        "half-file",
        FaultClass.UNKNOWN,
        r"^(\S*JSONDecodeError|UnpicklingError|BadZipFile|BadGzipFile)\b",
        "what was read is not whole, or is something else",
        f"{_PYTHON}; json, pickle, zipfile, gzip",
        "did a killed process leave half a file, in a compile cache perhaps? without it, it is made anew",
    ),
    # Files come and go with mounts and with other ranks.
    _row(
        "file",
        _TRANSIENT,
        r"^(OSError|IOError|EnvironmentError|FileNotFoundError|FileExistsError|PermissionError"
        r"|InterruptedError|BlockingIOError)\b",
        "a file could not be used",
        f"{_PYTHON}; a mount that comes late or goes raises the same as a name that is wrong",
        "is the file system mounted? does the path exist on this machine?",
    ),
)
