"""What torch says of accelerators of any kind, and of a machine that has none."""

from __future__ import annotations

import warnings

import pytest
import torch

from assay.benchmarks import limits, machine
from assay.harness.models.loading import runs
from assay.harness.models.machine import accelerators, memory
from assay.harness.models.machine.devices import parse_device
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.fake_gpu import Gpus, installed

CPU = torch.device("cpu")


def test_a_processor_has_nothing_to_wait_for() -> None:
    accelerators.wait(CPU)
    assert not accelerators.capturing(CPU)
    assert accelerators.name(CPU) is None
    assert accelerators.total(CPU) is None
    assert limits.cache_bytes(CPU) is None
    assert accelerators.free(CPU) > 0


@pytest.mark.parametrize("general", [True, False])
def test_gpus_are_asked_with_and_without_the_general_interface(
    monkeypatch: pytest.MonkeyPatch, general: bool
) -> None:
    """`torch.accelerator` is newer than the oldest torch that is supported."""
    with installed(Gpus(count=3, memory=10**10)) as gpus:
        if not general:
            monkeypatch.delattr(torch, "accelerator")
        device = torch.device("cuda", 2)
        assert accelerators.kind_here() == "cuda"
        assert accelerators.count("cuda") == 3
        assert accelerators.current("cuda") == torch.device("cuda", 0)
        assert accelerators.name(device) == "fake GPU"
        assert accelerators.free(device) == memory.free(device) == 10**10
        assert limits.cache_bytes(device) == 50 * 2**20
        accelerators.wait(device)
        accelerators.wait_for_all("cuda")
        accelerators.release()
        assert gpus.calls == [
            *(f"synchronize cuda:{n}" for n in (2, 0, 1, 2)),
            "empty the cache",
        ]
        assert machine.describe(device)["gpu"] == "fake GPU"
        assert runs.device_name("cuda:2") == "cuda:2 (fake GPU)"


def test_seven_of_two_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with installed(Gpus(count=2)):
        assert parse_device("cuda") == torch.device("cuda", 0)
        assert parse_device("cuda:1") == torch.device("cuda", 1)
        with pytest.raises(BadInput) as caught:
            parse_device("cuda:7")
    words = "'cuda:7': is not there, the last CUDA GPU is cuda:1 (2 CUDA GPUs here"
    assert str(caught.value).startswith(words)
    assert "CUDA_VISIBLE_DEVICES is '4,5'" in str(caught.value)


def test_a_driver_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch finds no GPU then, and says why in a warning alone."""

    def count() -> bool:
        warnings.warn("The NVIDIA driver on your system is too old (11040)", stacklevel=2)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", count)
    with pytest.raises(BadInput, match=r"finds no CUDA GPU \(The NVIDIA driver .* is too old"):
        parse_device("cuda")


def test_a_gpu_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: the GPU has fallen off the bus")

    with installed(Gpus(count=1)):
        monkeypatch.setattr(torch, "zeros", gone)
        with pytest.raises(BadInput, match=r"cannot be used here .*fallen off the bus"):
            parse_device("cuda:0")
