"""The checkpoint of a federated run: a file of the trusted side, believed whole or not at all.

It holds the round's number, the public state and the clients' models; coins and noise are never
saved. A digest over all of it, in the file itself, shows damage: a bit that flips on a disk would
otherwise be somebody's model. It shows no forgery, so what is read is also checked for what it must
be. Of a private run only the clients' models are taken from it: the engine makes the centres again
from the ledger's releases, all of them, and they must agree with the checkpoint. A round that was
released after it is taken from the ledger too: nobody trains again for it (who took part is not on
record), and nothing is spent twice.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.engine import CURATOR, Message, Unprotected
from tacit.errors import InvalidInput
from tacit.files import replace_file
from tacit.folder import read_tensors
from tacit.privacy.chain import canonical, sha256
from tacit.privacy.planning import Door
from tacit.privacy.release import Declared, Key


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run is: centres and clip norm are public, models stay with their clients."""

    round: int
    centres: Tensor  # (R, d)
    clip_norm: float
    models: Tensor | None  # (m, d); None: clients keep nothing between rounds

    @classmethod
    def of(cls, shared: Message, models: Tensor | None) -> Checkpoint:
        """After a round."""
        values = {name: part.value for name, part in shared.items()}
        centres = torch.tensor(values["centres"])
        return cls(int(values["round"]), centres, float(values["clip_norm"]), models)

    def unprotected(self) -> Message:
        """Where a run without a door goes on."""
        return {
            "round": Declared(self.round),
            "centres": Unprotected(self.centres.numpy()),
            "clip_norm": Declared(self.clip_norm),
        }

    def require_released(self, door: Door) -> None:
        """InvalidInput unless every round until here is on the ledger: what did not go through the
        door must not come back out of a checkpoint."""
        for number in range(self.round):
            if door.ledger.released(Key(door.run, number, CURATOR)) is None:
                raise InvalidInput(
                    f"the checkpoint is at round {self.round} of the run {door.run!r}, but round "
                    f"{number} is not on the ledger: resume with the ledger that the run began with"
                )

    def require_following(self, shared: Message) -> None:
        """InvalidInput unless the releases until here made these centres."""
        made = torch.tensor(shared["centres"].value)
        if not torch.allclose(made, self.centres, rtol=1e-3, atol=1e-5):
            raise InvalidInput(
                "the checkpoint does not follow from this module and the ledger's releases: "
                "resume with the parameters that the run began with"
            )


def write_checkpoint(path: Path, state: Checkpoint, run: str) -> None:
    """Checkpoint and the name of its run, whole or not at all; for the trusted side only."""
    from safetensors.torch import save

    tensors = {name: tensor.contiguous() for name, tensor in _parts(state).items()}
    about = {"round": state.round, "clip_norm": float(state.clip_norm), "run": run}
    about["sha256"] = _digest(about, tensors)
    replace_file(path, save(tensors, metadata={"tacit": json.dumps(about)}), private=True)


def read_checkpoint(path: Path, like: Checkpoint) -> tuple[Checkpoint, str]:
    """The state and the name of its run; InvalidInput if it does not belong to this plan."""
    about, found = _read(path)
    wanted = _parts(like)
    if _kinds(found) != _kinds(wanted):
        raise InvalidInput(f"{path} holds {_kinds(found)}; this run has {_kinds(wanted)}")
    placed = {name: found[name].to(wanted[name].device) for name in wanted}
    state = Checkpoint(about["round"], placed["centres"], about["clip_norm"], placed.get("models"))
    return state, about["run"]


def left_off(path: Path | None, like: Checkpoint, door: Door | None) -> Checkpoint | None:
    """Where the checkpoint left off, if there is one; what it says of a private run must have gone
    through the door."""
    if path is not None and door is not None and door.ledger.path is None:
        warnings.warn(
            f"{path} is a checkpoint beside a ledger in memory: once this process has ended nobody "
            "can resume the run; give ledger=FILE",
            stacklevel=2,
        )
    if path is None or not path.exists():
        return None
    saved, _ = read_checkpoint(path, like)
    if door is not None:
        saved.require_released(door)
    return saved


def named_run(path: Path | None, run: str | None) -> str | None:
    """The run to resume, or the name that was asked for; InvalidInput if they differ."""
    if path is None or not path.exists():
        return run
    saved = str(_read(path)[0]["run"])
    if run is not None and run != saved:
        raise InvalidInput(f"{path} belongs to the run {saved!r}, this is {run!r}")
    return saved


def _parts(state: Checkpoint) -> dict[str, Tensor]:
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
