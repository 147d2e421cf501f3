"""Rendered manifests: right by Kubernetes' own schemas and by our rules, whatever the values."""

import re
import shlex
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from hypothesis import given as sampled
from hypothesis import settings as profile
from hypothesis import strategies as st

from faultrun.cli.manifests import read_requirements
from faultrun.errors import ConfigError, FaultrunError, UsageError
from faultrun.manifests.render import explained, from_file, from_option, settle, write
from faultrun.manifests.values import template_values
from faultrun.text.yaml_scalar import spelled
from support.manifests import KINDS, given, pod_templates, rendered, rules, template

BY_NAME = template_values()
CORE = {("v1", "ConfigMap"), ("v1", "Service"), ("batch/v1", "Job")}
CASES = {
    "vcjob": (
        (),
        ("storage=nfs", "nfs_server=10.0.0.5", "work=/data/atlas_dls", "data=/data/imagenet"),
        ("storage=host", "work=/data/work", "accelerator_type=module-910b-8", "host_network=true"),
        (
            *("rank_table=false", "hot_reset=false", "hold_signals=true"),
            *("cpu=190", "memory=700Gi", "recipe=pangu-alpha"),
        ),
        ("fault_scheduling=grace", "grace_period=899", "max_retry=0", "options=--tee=3"),
        ("grace_over_time=120", "grace_period=100"),
        ("nodes=4", "spares=1", "etcd_image=etcd:3.5", "lost_pod=RestartPod", "host_network=true"),
        ("nodes=2", "etcd=https://etcd-0.infra:2379,etcd-1.infra:2379,etcd-2.infra:2379"),
    ),
    "ascendjob": (
        (),
        ("framework=pytorch", "data=imagenet", "npu_resource=huawei.com/Ascend310P", "devices=1"),
        ("framework=tensorflow", "rank_table=false", "hot_reset=false", "args=--epochs=90", "args=on"),
    ),
    "job": (
        (),
        ("storage=nfs", "nfs_server=nfs", "work=/w", "data=/d", "memory=64Gi"),
        ("host_network=yes", "hold_signals=yes"),
        ("nodes=3", "spares=2", "host_network=yes"),
        ("nodes=3", "etcd=etcd.infra:2379", "grace_period=11"),
    ),
    "jobset": (
        (),
        ("nodes=3", "spares=1", "name=big"),
        ("nodes=2", "etcd=etcd.infra:2379", "host_network=on"),
        ("storage=host", "work=/w", "gpu_resource=amd.com/gpu", "devices=4"),
        ("max_retry=100",),
    ),
}


every_case = pytest.mark.parametrize(
    ("name", "settings"), [(name, one) for name, cases in CASES.items() for one in cases]
)


@every_case
def test_what_is_rendered_has_no_finding(name: str, settings: tuple[str, ...]) -> None:
    assert rules(rendered(name, *settings)) == []


@pytest.mark.slow
@every_case
def test_what_is_rendered_is_what_kubernetes_accepts(name: str, settings: tuple[str, ...]) -> None:
    documents = list(yaml.safe_load_all(rendered(name, *settings)))
    for document in documents:
        if (document["apiVersion"], document["kind"]) in CORE:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    pods = [pod for document in documents for pod in pod_templates(document)]
    assert len(pods) == (2 if any(one.startswith("etcd_image") for one in settings) else 1)
    for metadata, spec in pods:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_names_that_must_agree_do() -> None:
    rings, faults, reset, job = yaml.safe_load_all(rendered("vcjob", "name=resnet-50", "namespace=team-a"))
    assert [one["metadata"]["name"] for one in (rings, faults, reset, job)] == [
        "rings-config-resnet-50",
        "fault-config-resnet-50",
        "reset-config-resnet-50",
        "resnet-50",
    ]
    assert {one["metadata"]["namespace"] for one in (rings, faults, reset, job)} == {"team-a"}
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    variables = {one["name"]: one for one in container["env"]}
    assert variables["resnet-50"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert variables["FAULTRUN_LOG_DIR"]["value"] == "/job/output/resnet-50/faultrun_log"
    assert variables["FAULTRUN_TERMINATION_GRACE_S"]["value"] == "600"
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["faultrun", "prestop"]


def test_the_rendered_command_line_is_what_was_asked_for() -> None:
    text = rendered("job", "args=--epochs=3", "args=--name=a b", "args=${x}", "args=on", "options=--tee=3")
    (job,) = yaml.safe_load_all(text)
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == [
        *("--nproc-per-node=8", "--checkpoint_dir=/job/output/checkpoints", "--resume=always"),
        *("--tee=3", "/job/code/train.py", "--epochs=3", "--name=a b", "${x}", "on"),
    ]


LINES = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\u2028\u2029\x85"), max_size=40
)


@sampled(words=st.lists(LINES, max_size=4), script=LINES.filter(bool))
@profile(max_examples=20, deadline=None)
def test_any_words_come_out_of_the_manifest_as_they_went_in(words: list[str], script: str) -> None:
    settings = given("image=a:1", "script=", *(f"args={word}" for word in words))
    settings[1] = type(settings[1])(name="script", text=script, where="--set")
    values = settle(template("job"), settings)
    (job,) = yaml.safe_load_all(template("job").filled(values, "Rendered"))
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][3:] == [script, *words]


@sampled(value=st.text(st.characters(blacklist_categories=["Cs"]), max_size=30))
@profile(max_examples=100, deadline=None)
def test_a_string_is_spelled_so_that_it_stays_that_string(value: str) -> None:
    assert yaml.safe_load(f"key: {spelled(value)}") == {"key": value}
    assert yaml.safe_load(f"- {spelled(value)}") == [value]


@pytest.mark.parametrize("name", [*KINDS, "slurm", "Dockerfile"])
def test_a_template_takes_only_known_values_and_those_their_defaults_refer_to(name: str) -> None:
    names = template(name).names
    assert names <= set(BY_NAME)
    for one in names:
        assert "${name}" not in (BY_NAME[one].default or "") or "name" in names


def test_every_value_is_taken_by_some_template() -> None:
    taken = {one for name in (*KINDS, "slurm", "Dockerfile") for one in template(name).names}
    assert taken == set(BY_NAME)


@pytest.mark.parametrize(
    ("settings", "says", "hint"),
    [
        (("grace_perod=3",), "there is no such value", "did you mean grace_period?"),
        (("user=7",), "the template vcjob has no such value", "--list"),
        (("nodes=0",), "0 is not between 1 and 1024", "--set nodes=1"),
        (("nodes=4",), "several nodes agree through an etcd", "--set etcd=HOST:2379"),
        (("spares=1",), "takes the place of one of several nodes", "--set nodes=2"),
        (("nodes=4", "etcd=a:2379 b:2379"), "is not HOST:PORT, several between commas", ""),
        (("devices=0",), "0 is not between 1 and 1024", "--set devices=8"),
        (("devices=two",), "'two' is not a whole number", ""),
        (("name=Resnet_50",), "is not a name of a-z", ""),
        (("name=",), "it is empty", ""),
        (("fault_scheduling=on",), "'on' is none of grace, force, off", ""),
        (("rank_table=maybe",), "neither true nor false", ""),
        (("shm_size=16G B",), "is not a quantity", ""),
        (("log_dir=output",), "is not an absolute path", ""),
        (("args=a\nb",), "line break", ""),
        (("storage=nfs", "work=/data"), "a volume is on some server", "nfs_server"),
        (("storage=nfs", "nfs_server=a"), "it is an absolute path", ""),
        (("work=/data",), "with storage=claim it is the name of a claim", ""),
        (("queue=a", "queue=b"), "is given several times", "one queue"),
    ],
)
def test_a_value_that_cannot_be_is_refused_and_why(settings: tuple[str, ...], says: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        rendered("vcjob", *settings)
    assert says in refused.value.because
    assert hint in refused.value.hint
    assert "\n" not in refused.value.because


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (("grace_period=900",), "grace-over-time"),
        (("grace_period=600", "grace_over_time=600"), "grace-over-time"),
        (("options=--stop_grace=20m",), "stop-grace"),
        (("options=--max_restart=3",), "faultrun-options"),
        (("checkpoint_dir=/tmp/c",), "checkpoint-volume"),
        (("fault_scheduling=force",), "fault-scheduling"),
    ],
)
def test_values_that_break_a_rule_together_make_nothing(settings: tuple[str, ...], rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rendered("vcjob", *settings)
    assert refused.value.what.endswith(rule)


def test_a_missing_image_is_asked_for() -> None:
    with pytest.raises(UsageError) as refused:
        write(template("job"), [], read_requirements)
    assert refused.value.what == "job needs image"


def test_values_come_from_files_and_the_command_line_wins(tmp_path: Path) -> None:
    first = "name: from-file\ndevices: 4\nargs: [--a, --b]\noptions: --tee=3\nrank_table: no\n"
    values = settle(
        template("vcjob"),
        [
            *from_file("v.yaml", first),
            *from_file("w.yaml", "devices: 2"),
            from_option("image=a"),
            from_option("name=cli"),
        ],
    )
    assert (values["name"], values["devices"], values["rank_table"]) == ("cli", 2, False)
    assert (values["args"], values["options"]) == (("--a", "--b"), ("--tee=3",))
    assert settle(template("vcjob"), [*from_file("v.yaml", first), *given("image=a", "args=--c")])[
        "args"
    ] == ("--c",)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name: a\nnaem: b\n", "v.yaml:2 naem cannot be used"),
        ("name: {a: b}\n", "v.yaml:1 name cannot be used"),
        ("name: a\nname: b\n", "v.yaml:2 name is given twice"),
        ("- a\n", "v.yaml holds no values"),
        ("a: 1\n---\nb: 1\n", "v.yaml holds no values"),
        ("a: [\n", "v.yaml:2 is not YAML"),
        ("devices: many\n", "v.yaml:1 devices cannot be used"),
    ],
)
def test_a_file_of_values_is_refused_by_line(text: str, what: str) -> None:
    with pytest.raises(FaultrunError) as refused:
        settle(template("vcjob"), [*from_file("v.yaml", text), *given("image=a")])
    assert refused.value.what == what
    assert refused.value.exit_code == 78


@pytest.mark.parametrize("name", [*KINDS, "slurm", "Dockerfile"])
def test_the_explanation_of_a_template_is_a_file_of_its_defaults(name: str) -> None:
    text = explained(template(name))
    keys = re.compile(r"(?:# )?(([a-z_]+):.*)")
    matches = [match for line in text.splitlines() if (match := keys.fullmatch(line)) and match[2] in BY_NAME]
    uncommented = "\n".join(match[1] for match in matches)
    names = {one.name for one in from_file("e.yaml", uncommented)} | {"args", "options"} & template(
        name
    ).names
    assert names == template(name).names


def test_the_head_of_a_rendered_file_is_the_command_that_makes_it_again() -> None:
    text = rendered("job", "args=--name=a b")
    words = shlex.split(text.splitlines()[0].removeprefix("# Rendered by: faultrun render job "))
    assert words == ["--set", "image=registry.example/train:1.2", "--set", "args=--name=a b"]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        (
            "job",
            ("nodes=3", "spares=1"),
            ["--nnodes=3", "--rdzv-id=default.train", "--master_addr=train-0.train", "--nproc-per-node=8"],
        ),
        (
            "jobset",
            ("nodes=2", "name=big", "namespace=a"),
            ["--nnodes=2", "--rdzv-id=a.big", "--master_addr=big-train-0-0.big", "--nproc-per-node=8"],
        ),
        (
            "job",
            ("nodes=3", "etcd=e0:2379,e1:2379,e2:2379"),
            [
                "--nnodes=3",
                "--rdzv-id=default.train",
                "--rdzv-backend=etcd",
                "--rdzv-endpoint=e0:2379,e1:2379,e2:2379",
            ],
        ),
        (
            "vcjob",
            ("nodes=3", "etcd_image=etcd:3.5"),
            [
                *("--nnodes=3", "--rdzv-id=default.train", "--rdzv-backend=etcd"),
                *("--rdzv-endpoint=train-etcd-0.train:2379", "--worker_num=24"),
            ],
        ),
    ],
)
def test_several_nodes_get_the_same_words_and_meet_at_one_place(
    name: str, settings: tuple[str, ...], words: list[str]
) -> None:
    documents = list(yaml.safe_load_all(rendered(name, *settings)))
    pods = [pod for document in documents for pod in pod_templates(document)]
    ((container,),) = [pod["containers"] for _, pod in pods if pod["containers"][0]["name"] == "train"]
    assert container["args"][: len(words)] == words
    variables = {one["name"] for one in container["env"]}
    assert ("FAULTRUN_NODE_RANK" in variables) is (name != "vcjob")


def test_the_names_that_nodes_look_for_are_those_of_the_pods() -> None:
    service, job = yaml.safe_load_all(rendered("job", "name=big", "nodes=3", "spares=1"))
    assert service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"] == "big"
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert (job["spec"]["completionMode"], job["spec"]["parallelism"], job["spec"]["completions"]) == (
        "Indexed",
        4,
        4,
    )
    *_, job = yaml.safe_load_all(rendered("vcjob", "name=big", "nodes=3", "spares=1", "etcd_image=etcd:3.5"))
    assert [(task["name"], task["replicas"]) for task in job["spec"]["tasks"]] == [("etcd", 1), ("train", 4)]
    assert job["spec"]["minAvailable"] == 5
