"""Contrastive search: decoding that keeps away from states that the text already has.

After Su et al., "A Contrastive Framework for Neural Text Generation" (arXiv 2202.06417): of the
k most probable next tokens v it chooses the one with the largest
(1 - α) p(v | x) - α max_j cos(h_v, h_j), where h are the last hidden states.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.operations.cache_operations import rearrange
from assay.harness.results.errors import Missing

CANDIDATES, PENALTY = 4, 0.6
"""K and α: the paper's for GPT-2."""


@torch.no_grad()
def contrastive_search(
    subject: Subject,
    ids: Tensor,
    tokens: int,
    candidates: int = CANDIDATES,
    penalty: float = PENALTY,
) -> Tensor:
    """``tokens`` more tokens of each row of ``ids`` [batch, n]: [batch, tokens].

    Of equal scores it chooses the more probable token.  No row stops at an end token: the caller
    cuts it there.  Raises `Missing` where the cache cannot be reordered or there are no states.
    """
    output = subject(ids, keep=True)
    cache = output.cache
    logits, states = output.rows["logits"][:, -1], F.normalize(_last(output.rows).float(), dim=-1)
    rows = torch.arange(len(ids), device=subject.device)
    chosen = []
    for _ in range(tokens):
        probability, token = logits.float().softmax(-1).topk(candidates)
        rearrange(cache, "reorder_cache", rows.repeat_interleave(candidates))
        output = subject(token.reshape(-1, 1), cache=cache, keep=True)
        cache = output.cache
        ahead = F.normalize(_last(output.rows).float(), dim=-1).view(len(ids), candidates, -1)
        alike = (ahead @ states.mT).amax(-1)
        best = ((1 - penalty) * probability - penalty * alike).argmax(1)
        winners = rows * candidates + best
        rearrange(cache, "reorder_cache", winners)
        chosen.append(token[rows, best])
        logits = output.rows["logits"][winners, -1]
        states = torch.cat([states, ahead[rows, best, None]], dim=1)
    return torch.stack(chosen, dim=1)


def _last(rows: Rows) -> Tensor:
    """The last hidden states [batch, n, hidden]."""
    names = [name for name in rows.tensors if name.startswith("state ")]
    if not names:
        raise Missing("contrastive search: the model returns no hidden states")
    return rows[max(names, key=lambda name: int(name.removeprefix("state ")))]
