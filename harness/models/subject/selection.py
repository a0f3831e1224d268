"""Whether a pass chooses: experts for a token, or keys for a query."""

from __future__ import annotations

import inspect
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.harness.models.subject import configuration
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.roles import Role

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

_SELECTS = re.compile(r"\b(topk|argsort|kthvalue|sort)\(")
_EXAMPLE = re.compile(r"^\s*(>>>|\.\.\.) .*$", re.MULTILINE)
_CALLED = re.compile(r"\b(\w+)\(")


def routes(subject: Subject) -> bool:
    """Whether tokens are routed to experts, and the model can return the scores."""
    return configuration.routes(subject.config) and subject.takes(Role.ROUTER_LOGITS)


def chooses(subject: Subject) -> bool:
    """Whether tokens choose among experts."""
    return experts(subject) > 1


@memo
def selects(subject: Subject) -> bool:
    """Whether a layer's code sorts numbers or takes the largest ones: then rounding may decide
    which keys a query attends to, as it may decide which experts a token has.

    It reads the layers' classes and the functions of their files that they call.
    """
    return _select(frozenset(type(module) for module in subject.model.modules()))


@lru_cache(256)
def _select(classes: frozenset[Any]) -> bool:
    """`selects` of a model with layers of these ``classes``; a run asks it about many copies."""
    parts: set[Any] = set(classes)
    pending = [each for each in parts if not each.__module__.startswith("torch.nn")]
    while pending:
        part = pending.pop()
        code = _source(part)
        if _SELECTS.search(code):
            return True
        around = getattr(sys.modules.get(part.__module__), "__dict__", {})
        called = [around.get(name) for name in _CALLED.findall(code)]
        new = {each for each in called if inspect.isfunction(each)} - parts
        parts |= new
        pending += new
    return False


@lru_cache(4096)
def _source(part: Any) -> str:
    """The code of a class or function, without the examples of its docstrings."""
    try:
        return _EXAMPLE.sub("", inspect.getsource(part))
    except (OSError, TypeError, SyntaxError):  # typed in, or compiled
        return ""


def experts(subject: Subject) -> int:
    """Among how many experts a token's are chosen; 1 or less where nothing is chosen."""
    return max(map(configuration.experts, (subject.config, subject.model.config)))
