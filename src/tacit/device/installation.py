"""What bits depend on besides numbers: held still while clients work, and named where it matters.

An installation is the hardware, the libraries and the algorithms that these may choose from. It is
fixed before a run, and never by data.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings, filterwarnings

import torch
from torch import Tensor

_ALERT = ".*does not have a deterministic implementation.*"  # PyTorch's words


@contextmanager
def steady(device: torch.device) -> Iterator[None]:
    """Deterministic algorithms, no autotuning, one workspace and (on a CPU) one thread, inside.

    An operation that has no deterministic algorithm runs all the same, unless the caller has asked
    PyTorch to refuse those, as the trial before a run does (isolation_trial.py).
    """
    before = _chosen()
    if device.type == "cuda":  # read when cuBLAS is first used
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    strict = before[0] and not before[1]
    try:
        threads = 1 if device.type == "cpu" else before[-1]
        _choose((True, not strict, False, False, True, threads))
        with catch_warnings():
            filterwarnings("ignore", message=_ALERT)
            yield
    finally:
        _choose(before)


def one_thread() -> None:
    """For a thread that has just begun."""
    torch.set_num_threads(1)


@contextmanager
def strict() -> Iterator[None]:
    """PyTorch refuses operations that have no deterministic algorithm, inside."""
    before = _chosen()
    try:
        _deterministic(True, warn_only=False)
        yield
    finally:
        _choose(before)


_Choices = tuple[bool, bool, bool, bool, bool, int]


def _chosen() -> _Choices:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined] # torch's
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.get_num_threads(),
    )


def _choose(choices: _Choices) -> None:
    deterministic, warn_only, fill, benchmark, cudnn, threads = choices
    _deterministic(deterministic, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined] # torch's
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.deterministic = cudnn
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def _deterministic(mode: bool, *, warn_only: bool) -> None:
    """``torch.use_deterministic_algorithms``, which imports the compiler first: seconds, where
    nothing is compiled. What is, is told so in ``kernels``."""
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    else:
        torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)


def installation(device: torch.device) -> str:
    """In words.

    >>> installation(torch.device("cpu")).startswith("PyTorch 2")
    True
    """
    if device.type == "cuda":
        name = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        name = f"{platform.machine()} with {capability}"
    return f"PyTorch {torch.__version__} on {name}"


def kernels_for(matrices: Tensor) -> Any:
    """The kernels of many tasks' matrices (m, r, r), fused.py, where it takes such; else None."""
    if not matrices.is_cuda:
        return None
    from tacit.device import fused

    return fused if fused.serves(matrices) else None
