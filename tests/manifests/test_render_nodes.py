"""Manifests of several nodes: the same words for each, and names by which they find each other."""

import pytest
import yaml

from support.manifests import pod_templates, rendered


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
