"""Serves several requests at once by the library's continuous batching, with paged attention.

The library's server runs in a thread of its own, which ends with the process; it gets `LIMIT`
seconds for its answers, and so many batches that a server which makes no progress is an error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from time import monotonic
from typing import Any

import torch
import transformers
from transformers import GenerationConfig

from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject, compat
from assay.harness.models.subject.clock import Braked
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.offer import SERVED, Offer
from assay.harness.results.errors import REFUSALS, Missing, brief

LIMIT = 100.0
"""Seconds that a server gets for all answers; a claim beyond them has no verdict."""

STOPPING = 10.0
"""Further seconds in which a server that was stopped must have ended."""

PATIENCE = 4
"""Batches for each token that is read or generated, before a server counts as going round."""

LOGGER = "ContinuousBatchingLogger"
"""The library's logger, which prints errors that the answers contain as well."""


@dataclass(frozen=True)
class Service:
    """How requests are served: tokens of a ``page`` of the cache, ``slots`` for requests that run
    at once, and the ``budget`` of tokens in one batch: longer prompts are read in parts.
    """

    page: int = 4
    slots: int = 2
    budget: int = 16

    def settings(self, tokens: int) -> Any:
        """The library's settings, with a cache of room for ``tokens``."""
        kind = _kind_of_settings()
        if kind is None:
            raise Missing("this version of transformers has no ContinuousBatchingConfig")
        values = {
            "page_size": self.page,
            "num_blocks": 2 + tokens // self.page,
            "max_batch_tokens": self.budget,
            "max_requests_per_batch": self.slots,
            "return_logprobs": True,
            "auto_switch_to_flash": False,  # the model's own attention is under test
        }
        names = {each.name for each in fields(kind)}
        if "page_size" not in names:  # its name before 5.17
            values["block_size"] = self.page
        return kind(**{name: value for name, value in values.items() if name in names})


@dataclass(frozen=True)
class Answer:
    """What a request was continued by: ``tokens``, and the log probability of each."""

    tokens: list[int]
    logprobs: list[float]


@dataclass
class _Run:
    """The state of one server, shared with its thread."""

    answers: dict[str, Answer] = field(default_factory=dict)
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)


def _kind_of_settings() -> Any:
    """The class of the library's settings; None where the version has none (before 5.4)."""
    return getattr(transformers.generation.configuration_utils, "ContinuousBatchingConfig", None)


def pages(attention: str) -> bool:
    """Whether the library's server has paged attention by this implementation."""
    return attention in ("sdpa", "eager") or "flash" in attention


def why_not(subject: Subject) -> str:
    """Why the library has no server for such a model, by its class and configuration, or empty."""
    model = subject.model
    if _kind_of_settings() is None:
        return "this version of transformers has no ContinuousBatchingConfig"
    if not hasattr(model, "continuous_batching_context_manager"):
        return "the model's class does not generate"
    if subject.is_encoder_decoder:
        return "the library serves decoders only"
    from transformers.generation.continuous_batching import cache

    try:
        cache.group_layers_by_attn_type(subject.config)
    except (ValueError, AttributeError) as error:
        return f"a layer keeps something other than keys and values: {brief(error, 100)}"
    return ""


def require(subject: Subject) -> None:
    """Raise `Missing` where the library's server cannot run the model, as two requests show.

    Not where models of its type are recorded as served: then it is for the law to find out.
    """
    offer = subject.offer
    recorded = isinstance(offer, Offer) and not offer.configured and SERVED in offer.names
    if not recorded and (why := obstacle(subject)):
        raise Missing(why)


@memo
def obstacle(subject: Subject) -> str:
    """Why two short requests cannot be served with pages; empty if they can."""
    layers: set[int] = set()

    def watch(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        paged = pages_in(kwargs)
        if paged is not None and not isinstance(vars(paged).get("update"), _Noting):
            paged.update = _Noting(paged.update, layers)

    hook = subject.model.register_forward_pre_hook(watch, with_kwargs=True)
    ids = subject.content(torch.arange(7, device=subject.device)[None] * 5)[0].tolist()
    try:
        serve(subject, [ids, ids[2:]], 2)
    except (Missing, RuntimeError) as error:
        pass_on(error)
        return f"the library cannot serve the model: {brief(error, 150)}"
    finally:
        hook.remove()
    if left := _caching_layers(subject, ids) - layers:
        return f"{len(left)} layers do not read the server's paged cache"
    return ""


def _caching_layers(subject: Subject, ids: list[int]) -> set[int]:
    """The layers that put keys and values into an ordinary cache; all where that cannot be seen.

    Some layers read those of earlier ones and put none there.
    """
    layers: set[int] = set()
    cache = compat.configured_cache(subject.config)
    cache.update = _Noting(cache.update, layers)
    try:
        prompt = torch.tensor([ids], device=subject.device)
        subject(prompt, cache=cache, keep=True, states=False)
    except (Missing, *REFUSALS) as error:
        pass_on(error)
    return layers or set(range(subject.layers))


def pages_in(arguments: dict[str, Any]) -> Any:
    """The server's paged cache among the arguments of a pass, or None.

    The server passes it as ``cache``, a name that a model's own argument for its cache may have.
    """
    kinds = (
        each for each in arguments.values() if ".continuous_batching." in type(each).__module__
    )
    return next(kinds, None)


class _Noting:
    """Replaces a paged cache's ``update``: the same, and notes the layer."""

    def __init__(self, usual: Any, layers: set[int]) -> None:
        self.usual, self.layers = usual, layers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.layers.add(int(kwargs["layer_idx"] if "layer_idx" in kwargs else args[2]))
        return self.usual(*args, **kwargs)


def serve(
    subject: Subject,
    requests: Sequence[list[int]],
    tokens: int,
    service: Service | None = None,
    late: int = 0,
    meanwhile: Callable[[], None] | None = None,
) -> list[Answer]:
    """Each of ``requests``, lists of ids, continued greedily by ``tokens``, end token or not.

    The last ``late`` ones arrive once another one has been given a token; with ``meanwhile``, once
    all others have been answered and that has been called, while the server goes on.  Raises
    RuntimeError where the server fails or goes round without an end, and `Braked` where it gives
    no answer in `LIMIT` seconds.
    """
    service, run = service or Service(), _Run()
    room = 2 * sum(len(ids) + tokens for ids in requests)

    def work_through() -> None:
        try:
            _serve(subject, requests, tokens, service.settings(room), late, run, meanwhile)
        except BaseException as error:
            run.error = run.error or error
        finally:
            run.ended.set()

    # A daemon's threads are daemons: a server that does not end cannot keep the process alive.
    thread = threading.Thread(target=work_through, daemon=True)
    with ExitStack() as around:
        around.enter_context(_silenced())
        around.enter_context(_attention_put_back(subject))
        for clock in subject.clocks:  # they would end a pass of the server's thread
            around.enter_context(clock.paused())
        thread.start()
        run.ended.wait(LIMIT + STOPPING)
        thread.join(STOPPING)
    if run.error is not None:
        raise run.error
    if len(run.answers) < len(requests):
        raise Braked(f"the server of requests gave no answer in {LIMIT:g} s")
    return [run.answers[str(number)] for number in range(len(requests))]


def _serve(
    subject: Subject,
    requests: Sequence[list[int]],
    tokens: int,
    settings: Any,
    late: int,
    run: _Run,
    meanwhile: Callable[[], None] | None,
) -> None:
    model: Any = subject.model
    greedy = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    work = sum(len(ids) + tokens for ids in requests)
    ends, most = monotonic() + LIMIT, PATIENCE * work
    waiting = list(enumerate(requests))
    with model.continuous_batching_context_manager(
        generation_config=greedy,
        continuous_batching_config=settings,
        timeout=STOPPING,
        warmup=False,
    ) as server:

        def send(number: int) -> None:
            for index, ids in waiting[:number]:
                server.add_request(ids, str(index), max_new_tokens=tokens, streaming=True)
            del waiting[:number]

        send(len(requests) - late)
        while len(run.answers) < len(requests) and run.error is None and not run.ended.is_set():
            if (result := server.get_result(timeout=0.5)) is not None:
                if meanwhile is None:
                    send(len(waiting))
                if result.error is not None:
                    run.error = RuntimeError(f"the server failed a request: {result.error}")
                elif result.is_finished():
                    parts = list(result.generated_tokens), list(result.logprobs)
                    run.answers[result.request_id] = Answer(*parts)
                if meanwhile is not None and len(run.answers) == len(requests) - late:
                    meanwhile()
                    meanwhile = None
                    send(len(waiting))
            elif not server.is_running():
                run.error = RuntimeError("the server ended before it had answered")
            elif getattr(server, "current_batch", 0) > most:
                run.error = RuntimeError(f"the server ran {most} batches without an answer")
            elif monotonic() > ends:
                run.ended.set()
        if len(run.answers) < len(requests):
            server.stop(block=False, hard_stop=True)
        run.ended.set()  # it may take its time to stop, or not stop at all


@contextmanager
def _attention_put_back(subject: Subject) -> Iterator[None]:
    """Undo what the server sets, but set nothing: some parts reject the attention of the text."""
    usual = compat.settings(subject.model, compat.ATTENTION)
    try:
        yield
    finally:
        compat.restore(usual, compat.ATTENTION)


@contextmanager
def _silenced() -> Iterator[None]:
    """Do not print what the server logs."""
    logger = logging.getLogger(LOGGER)
    usual, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = usual
