"""The manifests of docs/examples/cluster have the form that Kubernetes and KubeRay ask for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (extra cluster)")

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples" / "cluster"
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
"""A DNS label (RFC 1123), as Kubernetes names things."""
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(m|Ki|Mi|Gi)?$")]


class Closed(BaseModel):
    """A part of a manifest with the keys that are used here, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Closed):
    """What names an object."""

    name: Name | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class Variable(Closed):
    """A variable of a container's environment; its value is a text, never a number."""

    name: str
    value: str | None = None
    valueFrom: dict[Literal["secretKeyRef"], dict[Literal["name", "key"], str]] | None = None  # noqa: N815 - Kubernetes' name


class Resources(Closed):
    """What a container asks for."""

    requests: dict[Literal["cpu", "memory"], Quantity]
    limits: dict[Literal["cpu", "memory"], Quantity] = Field(default_factory=dict)


class Container(Closed):
    """One container."""

    name: Name
    image: str
    env: list[Variable] = Field(default_factory=list)
    resources: Resources | None = None
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    volumeMounts: list[dict[Literal["name", "mountPath"], str]] = Field(default_factory=list)  # noqa: N815


class PodSpec(Closed):
    """What a pod is made of."""

    containers: list[Container] = Field(min_length=1)
    affinity: dict[Literal["podAntiAffinity"], dict[str, Any]] = Field(default_factory=dict)
    restartPolicy: Literal["Never", "OnFailure"] | None = None  # noqa: N815
    volumes: list[dict[str, Any]] = Field(default_factory=list)


class Template(Closed):
    """A pod's template."""

    metadata: Metadata = Field(default_factory=Metadata)
    spec: PodSpec


class HeadGroup(Closed):
    """KubeRay's headGroupSpec (ray.io/v1)."""

    rayStartParams: dict[str, str]  # noqa: N815
    template: Template


class WorkerGroup(HeadGroup):
    """KubeRay's workerGroupSpecs (ray.io/v1)."""

    groupName: Name  # noqa: N815
    replicas: int
    minReplicas: int  # noqa: N815
    maxReplicas: int  # noqa: N815
    labels: dict[str, str] = Field(default_factory=dict)


class ClusterSpec(Closed):
    """KubeRay's RayClusterSpec (ray.io/v1)."""

    rayVersion: str  # noqa: N815
    authOptions: dict[Literal["mode"], Literal["token"]]  # noqa: N815
    headGroupSpec: HeadGroup  # noqa: N815
    workerGroupSpecs: list[WorkerGroup]  # noqa: N815


class RayCluster(Closed):
    """KubeRay's RayCluster."""

    apiVersion: Literal["ray.io/v1"]  # noqa: N815
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: ClusterSpec


class ClaimSpec(Closed):
    """A v1 PersistentVolumeClaimSpec."""

    accessModes: list[Literal["ReadWriteOnce"]]  # noqa: N815
    resources: dict[Literal["requests"], dict[Literal["storage"], Quantity]]


class Claim(Closed):
    """A v1 PersistentVolumeClaim."""

    apiVersion: Literal["v1"]  # noqa: N815
    kind: Literal["PersistentVolumeClaim"]
    metadata: Metadata
    spec: ClaimSpec


class JobSpec(Closed):
    """A batch/v1 JobSpec."""

    backoffLimit: int  # noqa: N815
    template: Template


class Job(Closed):
    """A batch/v1 Job."""

    apiVersion: Literal["batch/v1"]  # noqa: N815
    kind: Literal["Job"]
    metadata: Metadata
    spec: JobSpec


def load(name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


def test_the_cluster_has_a_server_and_generators_on_machines_of_their_own_and_asks_for_a_token() -> None:
    cluster = RayCluster.model_validate(load("raycluster.yaml"))
    groups = {group.groupName: group for group in cluster.spec.workerGroupSpecs}
    assert {name: group.replicas for name, group in groups.items()} == {"server": 1, "load": 4}
    for name, group in groups.items():
        assert group.minReplicas <= group.replicas <= group.maxReplicas
        assert group.labels == {"role": name}
        (rule,) = group.template.spec.affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["labelSelector"]["matchLabels"].items() <= group.template.metadata.labels.items()
        assert rule["topologyKey"] == "kubernetes.io/hostname"


def test_the_job_joins_that_cluster_with_its_token_and_mounts_what_it_has() -> None:
    job, cluster = Job.model_validate(load("job.yaml")), RayCluster.model_validate(load("raycluster.yaml"))
    pod = job.spec.template.spec
    (lab,) = pod.containers
    (token,) = [each.valueFrom for each in lab.env if each.name == "RAY_AUTH_TOKEN"]
    assert token == {"secretKeyRef": {"name": cluster.metadata.name, "key": "auth_token"}}
    assert {"RAY_AUTH_MODE": "token"}.items() <= {each.name: each.value for each in lab.env}.items()
    assert f"{cluster.metadata.name}-head-svc:6379" in lab.args[0]
    assert {each["name"] for each in lab.volumeMounts} == {each["name"] for each in pod.volumes}


def test_everything_that_the_job_mounts_is_made_by_the_commands_of_the_book() -> None:
    volumes = {each["name"]: each for each in Job.model_validate(load("job.yaml")).spec.template.spec.volumes}
    book = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    claim = Claim.model_validate(load("runs.yaml"))
    assert volumes["runs"]["persistentVolumeClaim"] == {"claimName": claim.metadata.name}
    assert f"kubectl create configmap {volumes['suites']['configMap']['name']} " in book
    named = set(re.findall(r"-f (\S+\.yaml)", book))
    assert named == {path.name for path in EXAMPLES.glob("*.yaml")}


def test_everything_is_one_image_of_one_version() -> None:
    cluster, job = RayCluster.model_validate(load("raycluster.yaml")), Job.model_validate(load("job.yaml"))
    templates = [cluster.spec.headGroupSpec.template, *(group.template for group in cluster.spec.workerGroupSpecs)]
    templates.append(job.spec.template)
    images = {container.image for template in templates for container in template.spec.containers}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert len(images) == 1
    assert images.pop().endswith(f":{version}")
    dockerfile = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"plimsoll-(\d+\.\d+\.\d+)-", dockerfile)) == {version}
    assert f"rayproject/ray:{cluster.spec.rayVersion}-" in dockerfile
    locked = re.search(r"^ray==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert locked is not None
    assert locked[1] == cluster.spec.rayVersion


def test_a_misspelt_key_is_found() -> None:
    manifest = load("raycluster.yaml")
    manifest["spec"]["workerGroupSpecs"][0]["replica"] = 1
    with pytest.raises(ValidationError, match="replica"):
        RayCluster.model_validate(manifest)
