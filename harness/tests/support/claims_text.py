"""Claims as text, which tests of runs write into a project, and what is read of their failures."""

from __future__ import annotations

from typing import Any

from assay.harness.tests.support.sessions import law

WAITING = law(3, body='while Path("wait").exists(): time.sleep(0.01)')
LAWS = law(1), law(2, "draw(st.floats(2, 3), 'a number')"), WAITING, law(4)
"""Law 2 is broken; law 3 waits as long as there is a file named ``wait``."""

AHEAD = """
from assay.claims.cache.test_causality import test_a_prefix_ignores_what_follows_it
from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options

def one_ahead(module, arguments, embedded):
    moved = embedded.clone()
    moved[:, :-1] += embedded[:, 1:]
    return moved

@pytest.fixture(scope="session")
def subject(request):
    made = subjects.load(request.param, Options())
    if not os.environ.get("HEALTHY"):
        made.model.get_input_embeddings().register_forward_hook(one_ahead)
    return made

"""
"""Claim C1 on a model that sees one token ahead of where it is."""


def numbers(counterexample: dict[str, Any]) -> tuple[float, float, str]:
    """What a counterexample and its replay have to agree on."""
    return counterexample["observed"], counterexample["allowed"], counterexample["where"]
