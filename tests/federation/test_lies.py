"""A coordinator or a site that lies: no certificate says less than was spent, and nobody is drawn
from twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Budget, files, folder
from tacit.errors import InvalidInput, Refused
from tacit.federation import hidden_site, noise_shares
from tacit.federation.coordinator import _write, coordinate
from tacit.federation.hand_outs import PUBLIC
from tacit.federation.records import Records
from tacit.federation.site import KEY, Site
from tacit.federation.wire import packed, unpacked
from tacit.privacy.ledger import Ledger
from tacit.privacy.signing import signer_in
from tacit.tasks import TaskSet

Answer = Callable[[bytes], bytes]
Make = Callable[..., Any]
ROWS = {str(label): 12 for label in range(6)}
NODES: dict[str, Any] = {"rows": ROWS, "releases": 2}
SILOS: dict[str, Any] = {"unit": "example", "people": ROWS}
WAYS = [
    ("AsyncProximal", NODES),
    ("SharedPrior", SILOS),
    ("MeanRegularized", {"fewest": 4, "rounds": 1}),
]


def kind_of(request: bytes) -> str:
    return str(unpacked(request)[0]["kind"])


def without_the_end(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
    """A run in which nobody is told how it ended."""
    return [] if kind_of(request) == "finish" else [answer(request)]


def finished_with(there: Any, model: Path) -> dict[str, Any]:
    """What a site says to these files, as the end of its run."""
    content = {name: model / name for name in PUBLIC if (model / name).exists()}
    arrays = {name: np.frombuffer(file.read_bytes(), np.uint8) for name, file in content.items()}
    request = packed({"kind": "finish", "terms": there.terms.digest}, arrays)
    return unpacked(there.site("north").answer(request))[0]


def certified(there: Any, tmp_path: Path, *, posing: bool = True, **changes: Any) -> Path:
    """A sound folder of a run on the same data under changed terms, signed by the coordinator, and
    posing as one about these."""
    others = replace(there.terms, **changes)
    if posing:
        vars(others)["digest"] = there.terms.digest
    model = others.model(Ledger.in_memory())
    model.fit_tasks(there.everything, others.schema)
    files.make(out := tmp_path / "other")
    _write(model, others, signer_in(there.place / KEY), out)
    return out


@pytest.mark.parametrize(("learner", "given"), WAYS)
def test_a_site_hands_on_no_certificate_that_says_less_than_its_own_ledger(
    federation: Make, tmp_path: Path, learner: str, given: dict[str, Any]
) -> None:
    there = federation(learner, noise="secure", **given)
    coordinate(there.place, there.channel(fault=without_the_end))
    lie = certified(there, tmp_path, budget=Budget(0.5))
    assert "says less than our own ledger" in finished_with(there, lie)["refused"]
    assert "digests" in finished_with(there, there.place / "model")


@pytest.mark.parametrize(
    ("posing", "why"), [(False, "not about these terms"), (True, "has another neighbours")]
)
def test_a_site_hands_on_no_certificate_of_another_run(
    federation: Make, tmp_path: Path, posing: bool, why: str
) -> None:
    there = federation("AsyncProximal", noise="secure", **NODES)
    coordinate(there.place, there.channel(fault=without_the_end))
    budget = Budget(8.0, neighbours="zero-out")
    lie = certified(there, tmp_path, posing=posing, budget=budget)
    assert why in finished_with(there, lie)["refused"]


def test_a_node_is_not_drawn_from_again_under_another_name(federation: Make) -> None:
    """JSON's true is Python's 1: "node True" would have releases and columns beside node 1's."""
    there = federation("AsyncProximal", noise="secure", **NODES)
    coordinate(there.place, there.channel())
    name = next(name for name, places in there.terms.places.items() if 1 in places)
    about = {"kind": "step", "terms": there.terms.digest, "number": 0}
    request = packed(about | {"place": True}, {"column": np.ones(4)})
    said, arrays = unpacked(there.site(name).answer(request))
    assert "names a place, a number" in said["refused"]
    assert not arrays


@pytest.mark.parametrize("number", [True, -1, 1.0, "1", None])
def test_rounds_are_counted_and_nothing_else(federation: Make, number: Any) -> None:
    there = federation("SharedPrior", noise="secure", **SILOS)
    there.site("north").answer(packed({"kind": "agree", "terms": there.terms.to_dict()}))
    about = {"kind": "release", "terms": there.terms.digest, "number": number}
    said, _ = unpacked(there.site("north").answer(packed(about, {"1/base": np.zeros(4)})))
    assert "and tells another" in said["refused"]


def test_a_site_itself_looks_whether_noise_in_shares_is_close_enough(
    federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that nobody trusts may leave its own look out."""
    there = federation(noise="secure", fewest=4, rounds=1)
    monkeypatch.setattr("tacit.federation.hidden.require_close", lambda *_: None)
    monkeypatch.setattr(noise_shares, "SPARED", 1e-15)
    with pytest.raises(Refused, match="nothing is opened"):
        coordinate(there.place, there.channel())
    for home in there.homes.values():
        with Ledger(home / folder.LEDGER) as own:
            assert not [entry for entry in own.entries() if entry.kind == "spend"]


def test_two_sites_with_one_key_are_one(federation: Make) -> None:
    terms = federation().terms
    sites = dict(terms.sites)
    sites["west"] = replace(sites["west"], key=sites["north"].key)
    with pytest.raises(InvalidInput, match="two sites have one key"):
        replace(terms, sites=sites)


def test_runs_share_a_folder_only_if_their_whole_terms_agree(federation: Make) -> None:
    """Digests that begin alike can be searched for, and both runs would have the same coins."""
    there = federation()
    home = there.homes["north"]
    assert Records.at(home, there.terms).place.name == there.terms.digest


# --- sites that lie in secure aggregation --------------------------------------------------------


def test_a_site_whose_mask_key_is_not_signed_is_named_and_left_out(federation: Make) -> None:
    there = federation(noise="secure", fewest=4, rounds=1)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        found = answer(request)
        if site == "at west" and kind_of(request) == "secrets":
            said, boxes = unpacked(found)
            return [packed(said | {"masks": {"mask": "00" * 32}}, boxes)]
        return [found]

    coordinate(there.place, there.channel(fault=fault))
    assert {tuple(line["silent"]) for line in there.journal("round")} == {("west",)}
    assert there.journal("refused")[0]["site"] == "west"


def test_a_site_whose_boxes_do_not_open_is_named(federation: Make) -> None:
    there = federation(noise="secure", fewest=4, rounds=1)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        found = answer(request)
        if site == "at west" and kind_of(request) == "secrets":
            said, boxes = unpacked(found)
            return [packed(said, {name: np.zeros_like(box) for name, box in boxes.items()})]
        return [found]

    with pytest.raises(Refused, match="nothing is opened"):
        coordinate(there.place, there.channel(fault=fault))
    assert all("the box of west" in line["why"] for line in there.journal("refused"))


def test_shares_that_are_no_numbers_count_as_none(federation: Make) -> None:
    there = federation(noise="secure", fewest=4, rounds=1)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        found = answer(request)
        if site == "at west" and kind_of(request) == "unmask":
            said, _ = unpacked(found)
            return [packed(said | {"seeds": dict.fromkeys(there.terms.sites, "no number")})]
        return [found]

    coordinate(there.place, there.channel(fault=fault))
    assert (there.place / "model").exists()


def test_a_key_document_may_be_anything(federation: Make) -> None:
    terms = federation().terms
    documents: list[Any] = [None, [], "text", {}, {"site": "north", "terms": terms.digest}]
    for found in documents:
        with pytest.raises(Refused):
            hidden_site.signed_keys(found, terms, "north", "mask", {})


# --- absence -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("learner", "given"), [WAYS[0], WAYS[2]])
def test_a_site_whose_people_are_all_absent_answers_as_others_do(
    federation: Make, learner: str, given: dict[str, Any]
) -> None:
    """Before anything was charged it would be told apart from one with a single row."""
    there = federation(learner, noise="secure", budget=Budget(8.0, neighbours="zero-out"), **given)
    nobody = TaskSet.without_rows(there.terms.sites["north"].tasks, there.terms.schema)

    def node(name: str) -> Answer:
        def answer(request: bytes) -> bytes:
            site: Site = there.site(name)
            return (replace(site, read=lambda: nobody) if name == "north" else site).answer(request)

        return answer

    channel = there.channel()
    channel.nodes = {f"at {name}": node(name) for name in there.terms.sites}
    coordinate(there.place, channel)
    assert not there.journal("refused")
    assert there.journal("finished")[0]["missing"] == []


def test_a_table_without_rows_is_a_table(federation: Make) -> None:
    from tacit.cli.federated_site import rows_of

    there = federation()
    terms = replace(there.terms, columns={"task": "who", "target": "y"})
    names = ",".join(there.terms.schema.feature_names)
    (there.homes["south"] / "rows.csv").write_text(f"who,y,{names}\n")
    found, kept = rows_of(there.homes["south"], terms)
    assert (found.n_tasks, found.n_rows, kept) == (2, 0, None)


def test_a_run_in_which_no_release_came_says_whose(federation: Make) -> None:
    there = federation("AsyncProximal", noise="secure", **NODES)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        return [] if kind_of(request) == "step" else [answer(request)]

    with pytest.raises(Refused, match="north, south, west: not one release came"):
        coordinate(there.place, there.channel(fault=fault))
