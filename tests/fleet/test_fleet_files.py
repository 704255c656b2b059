"""The files of examples/fleet as far as they can be tried without a cluster: Slurm's script runs with stand-ins for its
commands, and what the files give to `hipwright fleet` is what the command takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hipwright.fleet.nodes import DEVICE_LABEL, device_label

FILES = Path(__file__).parents[2] / "examples/fleet"
STUBS = {
    "scontrol": 'printf "n1\\nn2\\nn3\\n"',
    # what runs on a node: its address, a node that stays until it is killed, a fleet that answers, a benchmark
    "srun": """node=$(printf '%s\\n' "$@" | sed -n 's/--nodelist=//p')
while [[ $1 == --* ]]; do shift; done
[[ $1 == hostname ]] && { echo "10.0.0.${node#n} fe80::1"; exit 0; }
echo "$node: $*" >> "$LOG"
[[ "$*" == *--block* ]] && exec sleep 3 > /dev/null 2>&1
[[ $2 == bench ]] || exit 0
until [[ $(grep -c "fleet up" "$LOG") == 3 ]]; do sleep 0.05; done
exit 1""",
}


@pytest.fixture
def calls(tmp_path: Path) -> tuple[int, list[str]]:
    """Slurm's exit code, and what it ran where."""
    for name, text in STUBS.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    log = tmp_path / "log"
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n[1-3]", "LOG": str(log)}
    command = ["bash", str(FILES / "slurm.sh"), "tasks/", "--target", "rocm"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, log.read_text().splitlines()


def test_slurms_script_starts_every_node_and_gives_the_benchmarks_exit_code(calls: tuple[int, list[str]]) -> None:
    code, ran = calls
    assert code == 1
    assert "n1: hipwright fleet up --host 10.0.0.1 --port 6379 --name n1 --block" in ran
    joins = {line for line in ran if "--address 10.0.0.1:6379 --host" in line}
    assert joins == {
        f"n{n}: hipwright fleet up --address 10.0.0.1:6379 --host 10.0.0.{n} --name n{n} --block" for n in (2, 3)
    }
    assert "n1: hipwright bench tasks/ --target rocm --fleet 10.0.0.1:6379 --resume" in ran


def options_of(command: str) -> set[str]:
    """The options of a `hipwright fleet` command."""
    import typer

    from hipwright.cli.main import app

    found: Any = typer.main.get_command(app)
    for word in ("fleet", command):
        found = found.commands[word]
    return {option for parameter in found.params for option in parameter.opts}


@pytest.mark.parametrize("name", ["slurm.sh", "kuberay.yaml", "Containerfile"])
def test_options_that_the_files_give_exist(name: str) -> None:
    text = (FILES / name).read_text().replace('", "', " ")
    used = re.findall(r"fleet (up|status|drain)\b([^\n\"]*)", text)
    assert used
    for command, rest in used:
        assert set(re.findall(r"--[a-z-]+", rest)) <= options_of(command), rest


def test_the_cluster_of_kubernetes_has_what_the_operator_and_hipwright_need() -> None:
    (cluster,) = yaml.safe_load_all((FILES / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), "the operator takes strings"
        (container,) = group["template"]["spec"]["containers"]
        env = {one["name"]: one for one in container["env"]}
        assert env["RAY_AUTH_MODE"]["value"] == "token" and "valueFrom" in env["RAY_AUTH_TOKEN"]
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] and group["groupName"]
        params = group["rayStartParams"]
        ((architecture, count),) = json.loads(json.loads(params["resources"])).items()
        (container,) = group["template"]["spec"]["containers"]
        limits = container["resources"]["limits"]
        gpus = limits["amd.com/gpu" if architecture.startswith("gfx") else "nvidia.com/gpu"]
        assert count == int(gpus) == int(params["num-gpus"])
        label, _, device = params["labels"].partition("=")
        assert label == DEVICE_LABEL and device_label(device) == device


def test_the_container_file_copies_what_there_is() -> None:
    lines = (FILES / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    known = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    assert {step[0] for step in steps} <= known and [step[0] for step in steps[:2]] == ["ARG", "FROM"]
    for _, what in (step for step in steps if step[0] == "COPY"):
        assert all((FILES.parents[1] / source).exists() for source in what.split()[:-1])
    words = [json.loads(what) for step, what in steps if step in ("ENTRYPOINT", "CMD")]
    assert words == [["hipwright"], ["fleet", "up", "--block"]]
