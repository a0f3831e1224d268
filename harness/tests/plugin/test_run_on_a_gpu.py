"""Runs of claims on a GPU that is not there: it computes as the processor does, and raises where a
GPU would (`harness.tests.support.fake_gpu_plugin`).
"""

from __future__ import annotations

import re

from assay.harness.tests.support.sessions import ROOT, Project

GPU = ["-p", "assay.harness.tests.support.fake_gpu_plugin", "--device=cuda:1", "--profile=glance"]

STRAY = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 8), nn.Linear(8, 32)

    def forward(self, input_ids):
        on_gpu = input_ids.device.type == "cuda"
        scale = torch.ones(8, device="{device}" if on_gpu else "cpu")
        return self.head(self.embedding(input_ids) * scale)

def build():
    torch.manual_seed(0)
    return Model().eval()
"""
"""A model that makes a tensor on a GPU that it names, whichever it lies on itself."""


def test_causality_and_caches_hold_there(project: Project) -> None:
    chosen = ["--model=tiny:llama", "--claim=C1", "--claim=C2"]
    session = project.run("claims", *GPU, *chosen, folder=ROOT)
    assert session.exit == 0, session.output
    upheld = re.search(r"(\d+) upheld", session.output.splitlines()[-1])
    assert upheld is not None, session.output
    assert int(upheld[1]) >= 12, session.output


def test_a_model_with_a_tensor_on_another_gpu_is_refused(project: Project) -> None:
    runs = {}
    for device in ("cuda:0", "cuda:1"):
        path = project.write("own/stray.py", STRAY.format(device=device))
        chosen = [f"--model={path}:build", "--attends=causal", "--claim=C1"]
        runs[device] = project.run("claims", *GPU, *chosen, folder=ROOT)
    assert runs["cuda:0"].refused("same device", "cuda:0 and cuda:1"), runs["cuda:0"].output
    assert runs["cuda:1"].exit == 0, runs["cuda:1"].output
