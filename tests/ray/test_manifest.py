"""The RayService manifest fits its image, and its Serve config builds the application."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ray.running import HAS_RAY
from trinity.loading import chat_model
from trinity.server.settings import ServerOptions

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "examples" / "ray" / "rayservice.yaml"
DOCKERFILE = ROOT / "examples" / "ray" / "Dockerfile"
PROGRAM = """
import sys
import yaml
from ray.serve.schema import ServeDeploySchema
from ray.serve import Application
from trinity.ray.serving import application

manifest = yaml.safe_load(open(sys.argv[1]))
config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
(app,) = ServeDeploySchema.model_validate(config).applications
assert app.import_path == "trinity.ray.serving:application"
assert isinstance(application({**app.args, "model": sys.argv[2]}), Application)
"""


def test_the_image_has_the_files_and_the_version_that_the_manifest_names() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[2:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    (base,) = (line for line in lines if line.startswith("FROM "))
    version = str(manifest()["spec"]["rayClusterConfig"]["rayVersion"])
    assert base.startswith(f"FROM rayproject/ray:{version}-")
    assert (
        f"ray[serve,data]>={version.rpartition('.')[0]}," in (ROOT / "pyproject.toml").read_text()
    )


def test_a_pod_has_room_for_the_largest_number_of_replicas() -> None:
    yaml = pytest.importorskip("yaml")
    spec = manifest()["spec"]
    (app,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    (group,) = spec["rayClusterConfig"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert int(container["resources"]["limits"]["cpu"]) >= app["args"]["cores"]
    assert group["maxReplicas"] >= app["args"]["autoscaling"]["max_replicas"]
    folders = {volume["mountPath"] for volume in container["volumeMounts"]}
    assert str(Path(app["args"]["model"].partition("=")[2]).parent) in folders
    # Responses that are running end before Kubernetes ends a pod.
    assert group["template"]["spec"]["terminationGracePeriodSeconds"] > ServerOptions().drain


def manifest() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(MANIFEST.read_text())


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed")
def test_the_manifest_deploys_the_application() -> None:
    command = [sys.executable, "-c", PROGRAM, str(MANIFEST), chat_model()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
