"""What `assay gpu` runs: its stages in order of worth, and the steps of each.

A step is a process of its own, so that a GPU that hangs or vanishes ends one step and not the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

MINUTES = 25
"""The most that all stages together may take."""

LIMITS = {"smoke": 200, "inversion": 300, "laws": 600, "kernels": 180, "rest": 220}
"""The stages in order of worth, each with its seconds when all of `MINUTES` are given."""

WORDS = {
    "smoke": "laws of glance on six tiny types, verdicts against the processor's",
    "inversion": "ceilings; descent and exact search against the loop and the whole vocabulary",
    "laws": "laws of quick on a 1.1 B and an 8 B geometry in bfloat16, with peak memory",
    "kernels": "attention kernels under C8 and G9, bitwise",
    "rest": "the other benchmarks",
}

TYPES = ("gpt2", "llama", "bert", "t5", "mixtral", "mamba")
"""Learned positions, rotary ones, a bidirectional model, an encoder with a decoder, a mixture of
experts, and a recurrent state."""

DTYPES = ("float32", "bfloat16", "float16")

LARGE = {"geometry:rotary-1b": 0.25, "geometry:rotary-8b": 0.75}
"""Models of the stage ``laws``, each with its share of the stage's time."""

SMALL = {"tiny:llama": 0.5, "tiny:gpt2": 0.5}
"""In their place in a rehearsal."""

KERNELS = ("math", "efficient", "flash", "cudnn")
"""Backends of sdpa, by the name of `torch.nn.attention.SDPBackend`."""

ATTENTIONS = ("flex_attention", "flash_attention_2", "flash_attention_3")
"""Implementations of transformers beside sdpa; those that are not installed are skipped."""

FEW = ("--claim=C1", "--claim=C6:one pass")
"""Claims of a rehearsal's smoke."""

MEASURED = ("test_ceilings.py", "test_descent.py", "test_exact.py")
"""Benchmarks of the stage ``inversion``."""

REST = (
    *("test_recovery.py", "test_descent_factors.py", "test_decoding.py", "test_cache.py"),
    *("test_scaling.py", "test_memory.py"),
)
"""Benchmarks of the stage ``rest``.  Those of whole runs and of comparing need no GPU."""

CLAIMS, BENCHMARKS = "claims", "benchmarks"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One process: pytest with ``arguments`` on ``device``, for at most ``limit`` seconds.

    ``sdpa`` is the backend that attention has to use where it can.  A step ``beside`` others may
    run together with those of its stage, as nothing in it is timed.  ``versus`` is the key of the
    step whose verdicts this one's must be.
    """

    key: str
    kind: str
    device: str
    arguments: Sequence[str]
    limit: float
    sdpa: str = ""
    beside: bool = False
    versus: str = ""

    @property
    def stage(self) -> str:
        """The stage that it belongs to."""
        return self.key.partition("/")[0]


def plan(
    device: str,
    minutes: float = MINUTES,
    rehearse: bool = False,
    stages: Collection[str] = tuple(LIMITS),
) -> list[Step]:
    """All steps of ``stages``, in their order; a rehearsal has the same ones, smaller."""
    makers = (_smoke, _inversion, _laws, _kernels, _rest)
    steps = [step for make in makers for step in make(device, rehearse) if step.stage in stages]
    if rehearse:  # of any processor: what a step takes there says nothing of a GPU
        return [replace(step, limit=60 * minutes) for step in steps]
    return [replace(step, limit=minutes / MINUTES * step.limit) for step in steps]


def stage_limit(stage: str, minutes: float = MINUTES, rehearse: bool = False) -> float:
    """Seconds of a stage; in a rehearsal any may take all the time there is."""
    return 60 * minutes if rehearse else minutes / MINUTES * LIMITS[stage]


def _smoke(device: str, rehearse: bool) -> list[Step]:
    models = [f"--model=tiny:{name}" for name in TYPES]
    few = FEW if rehearse else ()
    steps = []
    for dtype in DTYPES:
        # Laws that compile or start processes are no part of it, as in every run of glance.
        arguments = ("-m", "law", "--profile=glance", f"--dtype={dtype}", *models, *few)
        usual = Step(
            key=f"smoke/{dtype}",
            kind=CLAIMS,
            device=device,
            arguments=arguments,
            limit=LIMITS["smoke"],
            beside=True,
        )
        here = f"{usual.key} on the processor"
        steps += [replace(usual, key=here, device="cpu"), replace(usual, versus=here)]
    return steps


def _inversion(device: str, rehearse: bool) -> list[Step]:
    models = () if rehearse else ("--model=reference", "--model=geometry:gpt2")
    return [
        Step(
            key=f"inversion/{name.removeprefix('test_').removesuffix('.py')}",
            kind=BENCHMARKS,
            device=device,
            arguments=(f"benchmarks/{name}", *models, *(["--rehearse"] if rehearse else [])),
            limit=LIMITS["inversion"],
        )
        for name in MEASURED
    ]


def _laws(device: str, rehearse: bool) -> list[Step]:
    steps = []
    for model, share in (SMALL if rehearse else LARGE).items():
        limit = share * LIMITS["laws"]
        # The budget leaves time to load the model and to end the run.
        budget = f"--budget={max(1, int(0.85 * limit))}s"
        more = ("--profile=glance", "--claim=C1") if rehearse else ("--profile=quick", budget)
        arguments = ("-m", "law", "--dtype=bfloat16", f"--model={model}", *more)
        key = f"laws/{model.partition(':')[2]}"
        steps.append(Step(key=key, kind=CLAIMS, device=device, arguments=arguments, limit=limit))
    return steps


def _kernels(device: str, rehearse: bool) -> list[Step]:
    profile = "--profile=glance" if rehearse else "--profile=quick"
    model = "--model=tiny:llama" if rehearse else "--model=geometry:rotary-small"
    about = (profile, model, "--claim=C8", "--claim=G9", "--bitwise")
    each = LIMITS["kernels"]
    steps = [
        Step(
            key=f"kernels/sdpa {kernel}",
            kind=CLAIMS,
            device=device,
            arguments=(*about, "--dtype=bfloat16", "--attention=sdpa"),
            limit=each,
            sdpa=kernel,
        )
        for kernel in KERNELS
    ]
    for attention in ATTENTIONS:
        arguments = (*about, "--dtype=bfloat16", f"--attention={attention}")
        key = f"kernels/{attention}"
        steps.append(Step(key=key, kind=CLAIMS, device=device, arguments=arguments, limit=each))
    return steps


def _rest(device: str, rehearse: bool) -> list[Step]:
    return [
        Step(
            key=f"rest/{name.removeprefix('test_').removesuffix('.py')}",
            kind=BENCHMARKS,
            device=device,
            arguments=(f"benchmarks/{name}", *(["--rehearse"] if rehearse else [])),
            limit=LIMITS["rest"],
        )
        for name in REST
    ]
