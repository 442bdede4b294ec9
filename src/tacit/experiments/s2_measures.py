"""S2's measures by name: PyTorch comes when they are asked (s2_networks.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tacit.experiments.declared import Point


def accuracy_by_epsilon(seed: int, **cell: Any) -> Iterator[Point]:
    """Figure 3."""
    from tacit.experiments import s2_networks

    return s2_networks.accuracy_by_epsilon(seed, **cell)


def finetuned_accuracy(seed: int, **cell: Any) -> Iterator[Point]:
    """Table 1."""
    from tacit.experiments import s2_networks

    return s2_networks.finetuned_accuracy(seed, **cell)


def by_round(seed: int, **cell: Any) -> Iterator[Point]:
    """Figure 2."""
    from tacit.experiments import s2_networks

    return s2_networks.by_round(seed, **cell)
