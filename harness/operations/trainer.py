"""One step of the library's trainer, whose gradients are kept in place of a step."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from assay.harness.models.capabilities import Missing
from assay.harness.models.machine import accelerators
from assay.harness.models.subject import Subject, passes
from assay.harness.models.subject.passes import Pass
from assay.harness.operations import losses, train_mode
from assay.harness.operations.training import Gradients, Sample, trainable
from assay.harness.results.errors import REFUSALS, Unavailable, first_line


class Keeping(torch.optim.Optimizer):
    """An optimizer that keeps the gradients of the parameters ``named`` and changes nothing."""

    def __init__(self, named: dict[str, nn.Parameter]) -> None:
        super().__init__([*named.values()], {"lr": 1.0})
        self.named = named
        self.gradients: Gradients = {}

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Keep a copy of each gradient in float64."""
        self.gradients = {
            name: parameter.grad.detach().double().clone()
            for name, parameter in self.named.items()
            if parameter.grad is not None
        }


def labelled(subject: Subject, sample: Sample) -> Sample:
    """The sample with the argument ``labels`` as collators make it: the ids, but for padding.

    So the first id of a row is a label too, which a causal model does not predict.
    """
    labels = losses.as_argument(subject, sample.labels)
    if losses.is_shifted(subject):
        first, mask = losses.scored(subject, sample.ids)[:, 0], sample.arguments.get("mask")
        labels[:, 0] = first if mask is None else first.where(mask[:, 0] == 1, losses.IGNORED)
    return Sample(sample.ids, sample.labels, {**sample.arguments, "labels": labels})


def gradients(subject: Subject, parts: Sequence[Sample], names: Sequence[str]) -> Gradients:
    """The gradients of the summed cross-entropy of micro-batches, made of `labelled` batches, of
    which the trainer accumulates one step, without dropout.

    Raises `Missing` where it refuses the model, or trains on another device.
    """
    batches = [_arguments(subject, part) for part in parts]  # an encoder's output in evaluation
    number = sum(part.counted for part in parts)
    own = dict(subject.model.named_parameters())
    optimizer = Keeping({name: own[name] for name in names})
    with (
        train_mode.in_training(subject),
        trainable([own[name] for name in names]),
        _apart(subject) as folder,
    ):
        try:
            trainer = _trainer(subject, batches, optimizer, folder)
        except REFUSALS as error:
            raise Missing(f"trainer: it refuses the model: {first_line(error)}") from error
        trainer.train()
    return {name: number * tensor for name, tensor in optimizer.gradients.items()}


def _arguments(subject: Subject, part: Sample) -> dict[str, Any]:
    """What the model's forward is called with."""
    options = dict(part.arguments)
    places, mask = options.pop("positions", None), options.pop("mask", None)
    positional, named = passes.called_with(
        subject, Pass(part.ids, None, places, mask, None, False, False, options)
    )
    if positional:
        raise Missing("trainer: the model's forward has no name for its ids")
    return named


def _trainer(
    subject: Subject, batches: Sequence[dict[str, Any]], optimizer: Keeping, folder: str
) -> Any:
    from transformers import PrinterCallback, Trainer, TrainingArguments  # seconds

    settings = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=1,  # the collator makes a batch of one item
        gradient_accumulation_steps=len(batches),
        max_steps=1,
        max_grad_norm=0.0,
        use_cpu=subject.device.type == "cpu",
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    place = settings.device
    if place.type in accelerators.KINDS and place.index is None:
        place = accelerators.current(place.type)
    if any(each.device != place for each in subject.model.parameters()):
        raise Unavailable(f"trainer: it trains on {place}, where the model is not")
    settings._n_gpu = min(1, settings.n_gpu)  # not divided over the others
    trainer = Trainer(
        model=subject.model,
        args=settings,
        train_dataset=batches,
        data_collator=lambda items: items[0],
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


@contextmanager
def _apart(subject: Subject) -> Iterator[str]:
    """A folder for a trainer.  What it leaves in the model and in the process, its seed among
    them, ends with the block.
    """
    from accelerate.state import AcceleratorState, GradientState, PartialState

    with ExitStack() as stack:
        for state in (AcceleratorState, GradientState, PartialState):
            stack.callback(_put_back, state._shared_state, dict(state._shared_state))
        for values in (vars(subject.model), os.environ):
            stack.callback(_put_back, values, dict(values))
        stack.enter_context(accelerators.forked(subject.device))
        gc.freeze()  # a trainer collects garbage at its end, in all that is in memory
        stack.callback(gc.unfreeze)
        yield stack.enter_context(TemporaryDirectory(prefix="assay-"))


def _put_back(values: Any, before: dict[str, Any]) -> None:
    """Make a mapping what it was."""
    for name in [name for name in values if name not in before]:
        del values[name]
    values.update(before)
