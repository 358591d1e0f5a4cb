"""The RayService manifest has a Serve config that Ray accepts and that this package builds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray.running import HAS_RAY
from trinity.loading import chat_model

MANIFEST = Path(__file__).resolve().parents[2] / "examples" / "ray" / "rayservice.yaml"
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


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed")
def test_the_manifest_deploys_the_application() -> None:
    command = [sys.executable, "-c", PROGRAM, str(MANIFEST), chat_model()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
