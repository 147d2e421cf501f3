"""The prose of the page, and what others have published: only figures that were seen where it says."""

# ruff: noqa: E501  sentences are not wrapped

SAME = "Other ranks hold the same state (DDP, HSDP with a replica)"
OWN = "Each rank holds a part that nobody else has (FSDP, ZeRO, pipelines without a replica)"
INTERVAL_OF = {
    "shell loop": "a restart loses all since the last save",
    "+ gasp": "survivors save (gasp), replicated",
    "+ memory snapshots": "copies in memory, sharded",
}
INTRODUCTION = """\
Nobody has run faultrun on 1,024 devices. These numbers come from a simulation: faults as often as published for large clusters, recoveries as measured on 2 CPU cores with small models, and in between
*re-init*, what a large cluster needs beyond the measured seconds, which is an assumption. ETTR is the share of {days} days in which training did what became the final weights; all policies meet the same
faults ({faults:,} of them for each size, but 50,000 months at most), and at its best each saves as often as Daly's formula says for those faults that cost it work.

**In short.** Whatever launches, a plain restart costs the same: the launchers' own seconds vanish beside lost work, replaced nodes and re-init. On one node a fault comes less than twice a year and nothing here matters
much. From 1,024 devices on, saving what survivors hold and having spares make most of the difference; standbys and survivors that stay make some, and only if re-init is long."""
SUPPOSED = """\
Survivors that stay were measured on one node; over several they stay as well. Copies in memory are made beside training, in scripts whose ranks can stay. *Supposed* rows were not measured: torchrun with spares that take over as fast as
ours did, which it does not have; copies of a rank's state on the next node, which faultrun keeps. A spare node is paid for, which at 8 devices doubles the price.
Survivors that stay write no file, so that a later fault may lose more: at 1,024 devices that takes back what they gain."""
FORMULA = """\
Young: √(2 C M); Daly: the next order of it. C is the time that a save stops training, M the mean time between faults *that lose work*: with gasps only those that end all ranks at once (and, on one node, the node).
*Searched* is the best of 28 intervals in the simulation; the curve is flat there, so that it may be 20 % away and cost nothing, and the differences in the last column are noise where they are below 0.05."""
CHECKED = (
    "The simulation beside Daly's complete model, where every fault is a rank's and a restart takes 5 min:"
)
HANG = """\
The work since the last save and the restart come on top. faultrun's time is its default where the run knows no limit; with `--hang_timeout` it is yours. A hang outside of collectives, all ranks in a
save for example, is seen by no watchdog of theirs and costs the others whatever a person needs to notice it; that is not simulated."""
REINIT = """\
Beyond the measured seconds: communicators, devices, compilation, large models. The same at all sizes here. Sources put a whole restart between 10 s and 30 min (below)."""
STAND_IN = "Survivors that stay have no result of their own yet: they are given the samples of standbys."
LIMITS = """\
## What this does not show

* Recoveries were measured with two torch workers over gloo, on 2 CPU cores. Nothing is known of NCCL, HCCL, of 1,000 nodes' etcd under faults, of standbys beside a full device memory.
* The same faults for all: independent, at a constant rate, one at a time. Real ones come in bursts, and bad nodes come back. Published rates of small trainings are three to four times what the rate of large ones
  scales to [7] (row *four times the faults*).
* torchrun is taken in the form in which each first restart works (`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`); as it comes, 9 of 15 first restarts failed here ([warm.md](warm.md)). The shell loop is a careful one that ends
  all ranks. How they find a lost node is taken to be as quick as a lease.
* Checkpoints are always whole and load at once; those of the others as well. What a torn or wrong one costs is not in here, nor a job that nobody starts again.
* Training at the same speed after each restart, no data loader to wind, no slow node."""

SOURCES = (
    "Llama 3 405B, 16,384 H100, 54 days: 419 unexpected interruptions of 466, over 90 % effective training time, 3 with"
    " significant manual intervention, 78 % confirmed or suspected hardware; the table by cause (54 software bugs, 7 NCCL watchdog timeouts). "
    "[arXiv 2407.21783](https://arxiv.org/abs/2407.21783), read as quoted by"
    " [datacenterdynamics](https://direct.datacenterdynamics.com/en/news/meta-report-details-hundreds-of-gpu-and-hbm3-related-interruptions-to-llama-3-training-run)"
    " and [G. K. Lockwood](https://glennklockwood.com/garden/component-reliability).",
    "Crusoe at GTC25, an H200 cluster: 41.5 % of faults replaced a host, 19.5 % were recoverable faults of a GPU; quoted by"
    " [G. K. Lockwood](https://glennklockwood.com/garden/component-reliability).",
    "Crusoe AutoClusters replaces a node in under 5 minutes:"
    " [its blog](https://www.crusoe.ai/resources/blog/autoclusters-minimizing-hardware-failures-in-large-gpu-clusters).",
    "A claim takes until the next business day with advance replacement, else 3 to 14 business days; with parts on site under a day:"
    " [amcompute](https://amcompute.com/blog/when-a-gpu-dies-in-production).",
    "`rank_heartbeat_timeout=2700.0`:"
    " [NVIDIA resiliency extension](https://nvidia.github.io/nvidia-resiliency-ext/fault_tolerance/api/config.html).",
    "Llama 3's store: 2 TB/s sustained, 1 MB to 4 GB of state a GPU;"
    " [a summary of arXiv 2407.21783](https://ai-papers.xuzou.cn/papers/llama3_2024).",
    "Meta's research clusters, [arXiv 2410.21680](https://arxiv.org/abs/2410.21680): mean time between failures 47 days at 8 GPUs, 8 h at 1,024,"
    " 1.8 h at 16,384, as [Crusoe](https://www.crusoe.ai/resources/blog/autoclusters-minimizing-hardware-failures-in-large-gpu-clusters) quotes it;"
    " the rate of 6.5 in 1,000 node-days (RSC-1) as a public repository quotes it. The first two are 3 to 4 times as frequent as that rate scales to.",
    "DLRover's README: 75 % of faults are mended by starting processes again.",
    "ByteRobust, 9,600 GPUs for three months: 97 % ETTR; [arXiv 2509.16293](https://arxiv.org/abs/2509.16293), abstract.",
    "Recovery at scale: FT-HSDP at about 100,000 GPUs from 10 min to 3 min ([arXiv 2602.00277](https://arxiv.org/abs/2602.00277), abstract);"
    " FlashRecovery 150 s at 4,800 devices (arXiv 2509.03047, abstract); HyperPod from 15-30 min to under 2 min (AWS); JobSet from 130 s to 10 s at 5,000 nodes"
    " (kubernetes-sigs/jobset issue 467).",
    "Young's formula, √(2 μ C): [HAL 02514107](https://hal.inria.fr/hal-02514107), abstract. Daly's of the next order is from memory; the tests compare"
    " it with the maximum of his complete model.",
)

BESIDE = (
    ("Llama 3, 16,384 devices [1]", "> 90 %", "16384", ("torchrun", "+ gasp", "+ spares over nodes")),
    ("ByteRobust, 9,600 devices [9]", "97 %", "9600", ("torchrun", "+ gasp", "+ spares over nodes")),
)
"""What, what the source tells, the size, and the policies to set beside it."""

TOLD = (
    "Their faults, models, nodes and hours of people are others than those assumed here: the order of magnitude is right,"
    " and more is not to be read from it. Restarts at scale that others tell of [10] lie between 10 s and 30 min."
)
