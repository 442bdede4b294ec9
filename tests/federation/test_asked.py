"""What a site answers follows from its own terms, whatever a coordinator leaves out of its code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import Budget
from tacit.errors import InvalidInput
from tacit.federation.coordinator import coordinate
from tacit.federation.own_tasks import Planned
from tacit.federation.site import COULD_NOT
from tacit.federation.wire import packed, unpacked
from tacit.json_converter import to_json

Make = Callable[..., Any]
SILOS: dict[str, Any] = {"unit": "example", "people": {str(label): 12 for label in range(6)}}
NODES: dict[str, Any] = {"rows": 12, "releases": 2}
KINDS = {"contribute", "secrets", "masked", "unmask", "step", "release", "report"}
KINDS |= {"finish", "seal", "score"}
END = {"finish", "seal"}


def require_refused(site: Any, terms: Any, kinds: set[str]) -> None:
    site.answer(packed({"kind": "agree", "terms": terms.to_dict()}))
    for kind in sorted(kinds):
        said, arrays = unpacked(site.answer(packed({"kind": kind, "terms": terms.digest})))
        assert f"it asks for {kind!r}: no site answers that" in said["refused"]
        assert not arrays


@pytest.mark.parametrize(
    ("learner", "given", "answered"),
    [
        ("MeanRegularized", {}, {"contribute", "score"}),
        ("MeanRegularized", {"fewest": 4}, {"secrets", "masked", "unmask"}),
        ("SharedPrior", SILOS, {"release"}),
        ("AsyncProximal", NODES, {"step"}),
    ],
)
def test_a_site_answers_what_its_terms_need_and_nothing_else(
    federation: Make, learner: str, given: dict[str, Any], answered: set[str]
) -> None:
    there = federation(learner, noise="secure", **given)
    require_refused(there.site("north"), there.terms, KINDS - answered - END)


def test_a_device_answers_with_reports_alone(devices: Any) -> None:
    require_refused(devices.site("phone"), devices.terms, KINDS - {"report"})


def test_a_silo_contributes_no_row_to_a_coordinator_that_nobody_trusts(federation: Make) -> None:
    there = federation("SharedPrior", noise="secure", **SILOS)
    site, planned = there.site("north"), Planned(1.0)
    site.answer(packed({"kind": "agree", "terms": there.terms.to_dict()}))
    own = site._own()
    start = own.model._coordinator(own._facts(there.terms, planned)).start()
    about = {"kind": "contribute", "terms": there.terms.digest, "number": 0}
    told = {f"0/{name}": np.asarray(part.value) for name, part in start.items()}
    request = packed(about | {"planned": to_json(planned)}, told)
    assert not unpacked(site.answer(request))[1]  # it was the silo's sum, without noise


@pytest.mark.parametrize(("learner", "given"), [("SharedPrior", SILOS), ("AsyncProximal", NODES)])
def test_no_scores_are_planned_where_nobody_is_trusted(
    federation: Make, learner: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput, match="unless a coordinator is trusted"):
        replace(federation(learner, noise="secure", **given).terms, scores=0.1)


def test_terms_for_one_process_are_not_agreed_to(federation: Make) -> None:
    there = federation("LowRank", noise="secure", rounds=2)
    parameters = {"rounds": 2, "protect_examples": Budget(1.0, 0.0)}  # noise of each task's own
    terms = replace(there.terms, parameters=parameters)
    said, _ = unpacked(there.site("north", terms).answer(packed({"kind": "agree"})))
    assert said["refused"] == COULD_NOT
    with pytest.raises(InvalidInput, match="runs in one process only"):
        _ = terms.way


@pytest.mark.parametrize(
    ("learner", "given"),
    [("SharedPrior", SILOS), ("AsyncProximal", NODES), ("MeanRegularized", {"fewest": 4})],
)
def test_the_digest_of_a_hand_out_says_nothing_to_who_knows_the_rows(
    federation: Make, learner: str, given: dict[str, Any]
) -> None:
    there = federation(learner, noise="secure", **given)
    channel = there.channel()
    coordinate(there.place, channel)
    to_south = [request for address, request in channel.sent if address == "at south"]
    request = next(each for each in to_south if unpacked(each)[0]["kind"] == "finish")

    def digests() -> set[str]:
        return set(unpacked(there.site("south").answer(request))[0]["digests"].values())

    sent = digests()
    assert sent == digests()  # asked again it says the same
    salts = list(there.homes["south"].rglob("salt.key"))
    assert len({salt.read_bytes() for salt in salts}) == len(sent) == 2  # none for both tasks
    told = list(there.homes["south"].rglob("finished.json"))
    for file in (*salts, *told):
        file.unlink()
    assert not sent & digests()  # all that the file holds is known, but for the salt


def test_rows_that_change_after_the_end_show_in_no_answer(federation: Make) -> None:
    """Digests of new models would tell the coordinator that there are other rows now."""
    there = federation(noise="secure")
    channel = there.channel()
    coordinate(there.place, channel)
    of_south = [request for address, request in channel.sent if address == "at south"]
    request = next(each for each in of_south if unpacked(each)[0]["kind"] == "finish")
    before = there.site("south").answer(request)
    there.data.y[:] = 0.0
    assert there.site("south").answer(request) == before
    description, arrays = unpacked(request)
    said, _ = unpacked(
        there.site("south").answer(packed(description, arrays | {"x": arrays["seal.json"]}))
    )
    assert "finished before, with other files" in said["refused"]
