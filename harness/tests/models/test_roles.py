"""Roles of arguments: bound by name, type, the library's renames, and by trying."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
import transformers
from transformers import Cache, DynamicCache, LlamaForCausalLM
from transformers.utils.deprecation import deprecate_kwarg

import assay
from assay.harness.models.capabilities import caches
from assay.harness.models.loading import by_design
from assay.harness.models.subject import Subject, roles
from assay.harness.models.subject.roles import Role, bind
from assay.harness.tests.support.toys import fresh, prompt, toy

ROOT = Path(__file__).parents[3]


def no_name(ids, other=None):
    """A pass that names nothing but its ids."""


def by_type(input_ids, kv: Cache | None = None, use_cache: bool | None = None):
    """Someone's own name for a cache of the library's type."""


def by_kind(input_ids, memory: Optional[DynamicCache] = None):  # noqa: UP045
    """A kind of cache, as older code writes it."""


def of_the_library(input_ids, past_key_values=None):
    """The library's name, without a type."""


def of_a_dict(input_ids, cache: dict[str, torch.Tensor] | None = None):
    """The library's name for something else (XLM)."""


@deprecate_kwarg("past_key_values", "9.0.0", new_name="thing")
@deprecate_kwarg("logits_to_keep", "9.0.0", new_name="where")
def renamed(input_ids, thing=None, where=0):
    """New names that nothing but the decorators explains."""


@pytest.mark.parametrize(
    ("forward", "name"),
    [
        (by_type, "kv"),
        (by_kind, "memory"),
        (of_the_library, "past_key_values"),
        (renamed, "thing"),
    ],
)
def test_a_cache_is_bound_by_type_name_or_rename(forward: Callable[..., Any], name: str) -> None:
    assert bind(forward).certain
    assert bind(forward)[Role.CACHE] == name


@pytest.mark.parametrize("forward", [no_name, of_a_dict])
def test_what_may_be_no_cache_is_not_bound_by_its_name(forward: Callable[..., Any]) -> None:
    assert Role.CACHE not in bind(forward)


def test_a_decoder_beside_an_encoder_has_names_of_its_own() -> None:
    bound = toy("t5").bound
    assert bound[Role.IDS] == "decoder_input_ids"
    assert bound[Role.MASK] == "decoder_attention_mask"
    assert bound[Role.ENCODER_MASK] == "attention_mask"


class Own(LlamaForCausalLM):
    """Names its cache without a type, and calls it otherwise."""

    def forward(self, input_ids=None, kv=None, use_cache=None, **named):  # type: ignore[override]
        inner = inner_name()
        output = super().forward(input_ids, use_cache=use_cache, **{inner: kv}, **named)
        return {"logits": output.logits, "kv": output.get(inner)}


class Swallowing(LlamaForCausalLM):
    """Has its cache among other arguments, which it does not name."""

    def forward(self, input_ids, **named):  # type: ignore[override]
        return super().forward(input_ids, **named)


class Deaf(LlamaForCausalLM):
    """Takes a cache by two names, and reads the second."""

    def forward(self, input_ids=None, past=None, kv_states=None, use_cache=None, **named):  # type: ignore[override]
        inner = inner_name()
        return super().forward(input_ids, use_cache=use_cache, **{inner: kv_states}, **named)


def inner_name() -> str:
    """The name that the library's Llama gives its cache."""
    return bind(LlamaForCausalLM.forward)[Role.CACHE]


@pytest.mark.parametrize(("kind", "name"), [(Own, "kv"), (Deaf, "kv_states")])
def test_a_cache_whose_name_says_nothing_is_found_by_trying(kind: type, name: str) -> None:
    subject = of_class(kind)
    assert subject.cache_argument == name
    ids = prompt(subject, 6)
    stepwise = caches.decode(subject, ids, [3, 1, 1, 1])["logits"]
    assert torch.allclose(stepwise, subject.rows(ids)["logits"], atol=1e-4)


def test_a_cache_among_arguments_without_a_name_is_found() -> None:
    subject = of_class(Swallowing)
    assert subject.cache_argument in roles.SPELLINGS[Role.CACHE]
    assert subject(prompt(subject, 4), keep=True).cache.get_seq_length() == 4


def of_class(kind: type) -> Subject:
    """A tiny Llama of a class of one's own."""
    model = fresh("llama").model
    model.__class__ = kind
    return Subject("own", model)


FIELDS = Path(by_design.__file__)
"""Lists fields of config.json, some of which have the names of arguments."""


def test_no_other_file_spells_the_name_of_an_argument() -> None:
    # These two are fields of a configuration and options of a chat template as well.
    elsewhere = {Role.ROUTER_LOGITS, Role.NAMED_OUTPUT}
    spelled = {n for role in {*Role} - elsewhere for n in roles.spellings(role) if "_" in n}
    files = [
        path
        for room in ("claims", "fixtures", "harness")
        for path in (ROOT / room).rglob("*.py")
        if "tests" not in path.parts and path not in (Path(roles.__file__), FIELDS)
    ]
    assert len(files) > 100
    found = {
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in files
        for name, line in names_in(path.read_text(encoding="utf-8"))
        if name in spelled
    }
    assert not found


@pytest.mark.parametrize(
    "code", ["f(use_cache=True)", 'a["position_ids"]', 'b = "cu_seq_lens_q"', "o.past_key_values"]
)
def test_a_spelled_name_is_noticed(code: str) -> None:
    assert [name for name, _ in names_in(code) if "_" in name]


def names_in(code: str) -> Iterator[tuple[str, int]]:
    """Names in strings, keyword arguments and attributes, each with its line.

    But for what a tokenizer returns, which has names like a model's arguments.
    """
    tree = ast.parse(code)
    tokenized = {
        id(node.slice)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in ("input_ids", "attention_mask")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in tokenized:
                yield node.value, node.lineno
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg, node.value.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno


def test_the_library_s_output_is_read_by_either_name() -> None:
    subject = toy("llama")
    output = roles.call(subject.model, prompt(subject, 3), keep=True)
    assert isinstance(roles.returned_cache(output), transformers.Cache)


def at_zero(cache: Any, ids: torch.Tensor, positions: Any) -> Any:
    """Position 0 for each token of a cached step."""
    past = cache is not None and cache.get_seq_length() > 0
    return torch.zeros_like(ids) if past else positions


class NewName(LlamaForCausalLM):
    """Cached steps get position 0; the cache has the name of transformers 5.24, without a type."""

    def forward(self, input_ids=None, position_ids=None, cache=None, **named):  # type: ignore[override]
        position_ids = at_zero(cache, input_ids, position_ids)
        inner = {inner_name(): cache}
        return super().forward(input_ids, position_ids=position_ids, **inner, **named)


def test_a_broken_cache_is_refuted_whatever_its_name() -> None:
    model = fresh("llama").model
    model.__class__ = NewName
    run = assay.check(model, claims=["C2", "C4"], profile="glance")
    refuted = {result.id for result in run.refuted}
    assert refuted == {"C2", "C4"}
    assert len(run.refuted) > 8
