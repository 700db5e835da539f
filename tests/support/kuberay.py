"""The fields of KubeRay's RayCluster (ray.io/v1) as its CRD has them; of a pod, those that we use; and no others."""

from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import BaseModel, ConfigDict


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EnvVar(Closed):
    name: str
    value: str


class Port(Closed):
    name: str
    containerPort: int


class Resources(Closed):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class VolumeMount(Closed):
    name: str
    mountPath: str


class Container(Closed):
    name: str
    image: str
    command: list[str] = []
    env: list[EnvVar] = []
    ports: list[Port] = []
    resources: Resources
    volumeMounts: list[VolumeMount] = []


class Claim(Closed):
    claimName: str


class Volume(Closed):
    name: str
    persistentVolumeClaim: Claim


class Toleration(Closed):
    key: str
    operator: Literal["Exists", "Equal"]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Pod(Closed):
    containers: list[Container]
    volumes: list[Volume] = []
    tolerations: list[Toleration] = []


class Template(Closed):
    spec: Pod


class HeadGroup(Closed):
    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"] = "ClusterIP"
    enableIngress: bool = False
    rayStartParams: dict[str, str]
    template: Template


class WorkerGroup(Closed):
    groupName: str
    replicas: Annotated[int, Ge(0)] = 0
    minReplicas: Annotated[int, Ge(0)]
    maxReplicas: Annotated[int, Ge(0)]
    numOfHosts: Annotated[int, Ge(1)] = 1
    idleTimeoutSeconds: Annotated[int, Ge(0)] | None = None
    suspend: bool = False
    rayStartParams: dict[str, str]
    template: Template


class AutoscalerOptions(Closed):
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] = "Default"
    idleTimeoutSeconds: Annotated[int, Ge(0)] = 60


class AuthOptions(Closed):
    mode: Literal["disabled", "token"]


class Spec(Closed):
    rayVersion: str = ""
    authOptions: AuthOptions | None = None
    suspend: bool = False
    managedBy: str | None = None
    enableInTreeAutoscaling: bool = False
    autoscalerOptions: AutoscalerOptions = AutoscalerOptions()
    headServiceAnnotations: dict[str, str] = {}
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup] = []


class Metadata(Closed):
    name: str
    namespace: str = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class RayCluster(Closed):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: Spec
