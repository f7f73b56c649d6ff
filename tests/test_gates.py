"""Constant gates against the papers' formulas."""

from __future__ import annotations

import math

import pytest
import torch

from recgen.gates import retnet_log_decay
from recgen.kernels import retnet


def test_the_papers_values() -> None:
    expected = [math.log(1 - 2.0 ** (-5 - head)) for head in range(8)]
    torch.testing.assert_close(retnet_log_decay(8, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)


def test_they_are_retnet_s_param() -> None:
    q, k, v = (torch.randn(1, 9, 4, 6) for _ in range(3))
    o, _ = retnet.retnet(q, k, v, retnet_log_decay(4), scale=1.0)
    gamma = 1 - torch.exp2(-5.0 - torch.arange(4))
    i = torch.arange(9)
    decay = torch.where(i[:, None] >= i, gamma[:, None, None] ** (i[:, None] - i).clamp(min=0), 0.0)
    expected = torch.einsum("hij,bihk,bjhk,bjhv->bihv", decay, q, k, v)
    torch.testing.assert_close(o, expected, rtol=1e-4, atol=1e-4)


def test_no_heads() -> None:
    with pytest.raises(ValueError, match="heads should be at least 1; got 0"):
        retnet_log_decay(0)
