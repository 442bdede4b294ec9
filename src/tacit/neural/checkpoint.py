"""The checkpoint of a federated run: a file of the trusted side, believed whole or not at all.

It holds the round's number, the public state and the clients' models; coins and noise are never
saved. A digest over all of it, in the file itself, shows damage: a bit that flips on a disk would
otherwise be somebody's model. It shows no forgery, so what is read is also checked for what it must
be, and centres are made again from the ledger (``tacit.neural.training.resumed``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.folder import read_tensors, replace_file
from tacit.neural.rounds import State
from tacit.privacy.chain import canonical, sha256


def write_checkpoint(path: Path, state: State, run: str) -> None:
    """State and the name of its run, whole or not at all; for the trusted side only."""
    from safetensors.torch import save

    tensors = {name: tensor.contiguous() for name, tensor in _parts(state).items()}
    about = {"round": state.round, "clip_norm": float(state.clip_norm), "run": run}
    about["sha256"] = _digest(about, tensors)
    replace_file(path, save(tensors, metadata={"tacit": json.dumps(about)}), private=True)


def read_checkpoint(path: Path, like: State) -> tuple[State, str]:
    """The state and the name of its run; InvalidInput if it does not belong to this plan."""
    about, found = _read(path)
    wanted = _parts(like)
    if _kinds(found) != _kinds(wanted):
        raise InvalidInput(f"{path} holds {_kinds(found)}; this run has {_kinds(wanted)}")
    placed = {name: found[name].to(wanted[name].device) for name in wanted}
    state = State(about["round"], placed["centres"], about["clip_norm"], placed.get("models"))
    return state, about["run"]


def run_in(path: Path) -> str:
    """The name of the run that a checkpoint belongs to."""
    return str(_read(path)[0]["run"])


def _parts(state: State) -> dict[str, Tensor]:
    kept = {"centres": state.centres, "models": state.models}
    return {name: tensor for name, tensor in kept.items() if tensor is not None}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What was written, checked."""
    try:
        about, tensors = read_tensors(path, framework="pt")
        _require_sound(about, tensors)
    except InvalidInput as error:
        raise InvalidInput(f"{path} is not a checkpoint: {error}") from None
    return about, tensors


def _require_sound(about: Any, tensors: dict[str, Tensor]) -> None:
    kinds = {"round": int, "clip_norm": float, "run": str, "sha256": str}
    if not isinstance(about, dict) or {name: type(v) for name, v in about.items()} != kinds:
        raise InvalidInput(f"it says {about!r}; expected {', '.join(kinds)}")
    if about["sha256"] != _digest(about, tensors):
        raise InvalidInput("it is damaged: its digest is not that of what it holds")
    if about["round"] < 0 or about["clip_norm"] <= 0:
        raise InvalidInput(f"it is at round {about['round']} with clip norm {about['clip_norm']}")
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.isfinite().all()):
            raise InvalidInput(f"its {name} are not all finite numbers")


def _digest(about: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Over everything but itself; InvalidInput: a number in it is not finite."""
    said = {name: value for name, value in about.items() if name != "sha256"}
    held = {name: [_kind(t), sha256(_bytes(t))] for name, t in tensors.items()}
    return sha256(canonical([said, held]).encode())


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def _kinds(tensors: dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {_kind(tensor)}" for name, tensor in sorted(tensors.items()))


def _kind(tensor: Tensor) -> str:
    """
    >>> _kind(torch.zeros(1, 3))
    '(1, 3) float32'
    """
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
