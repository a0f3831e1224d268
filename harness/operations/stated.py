"""What config.json states, compared with the model that was loaded by it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from assay.harness.models.loading import by_design, configured
from assay.harness.models.loading.configured import Difference
from assay.harness.models.subject import Subject
from assay.harness.models.subject.configuration import WINDOWS
from assay.harness.operations import variants

WINDOW = 8
"""Tokens of a window that is stated where the model has none."""

SHOWN = 3
"""How many fields a message names."""


@dataclass(frozen=True)
class Stated:
    """The ``content`` of a config.json, and the model that was ``loaded`` by it."""

    content: dict[str, Any]
    loaded: Subject

    @classmethod
    def of(cls, subject: Subject) -> Stated:
        """That of the folder that the subject was loaded from; without one, the subject is saved
        and loaded.

        Raises `Missing` where it cannot be saved.
        """
        if (folder := configured.folder_of(subject)) is not None:
            return cls(configured.content(folder), subject)
        with variants.saved(subject) as saved:
            return cls(configured.content(saved), variants.saved_and_loaded(subject))

    @property
    def differences(self) -> list[Difference]:
        """Every field that the model does not honour."""
        return configured.differences(self.content, self.loaded)

    @property
    def broken(self) -> list[Difference]:
        """Those fields that break the law."""
        return [each for each in self.differences if each.breaks]

    @property
    def where(self) -> str:
        """The first of those fields, in words."""
        return "; ".join(map(str, self.broken[:SHOWN]))

    def with_a_window(self) -> Stated:
        """The same with a window that no layer of the model has; with other numbers than the
        model's where layers may have a window, or the type knows of none.
        """
        content, config = copy.deepcopy(self.content), self.loaded.model.config
        for name in WINDOWS:
            if configured.lacks(config, name):
                for switch in (*by_design.SWITCHES.values(), "layer_types"):
                    content.pop(switch, None)
                return Stated(content | {name: WINDOW}, self.loaded)
        configured.change_numbers(content, config)
        return Stated(content, self.loaded)
