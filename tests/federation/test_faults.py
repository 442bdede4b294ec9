"""Whatever a network, a site or the coordinator does: the run ends, the models are those of the
recorded releases, and every release was spent once."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import Budget, files, folder
from tacit.errors import Refused
from tacit.estimator.contract import facts_of
from tacit.federation.coordinator import coordinate
from tacit.federation.own_tasks import among
from tacit.federation.records import Records
from tacit.federation.site import COULD_NOT
from tacit.federation.wire import packed, unpacked
from tacit.linear.losses import loss_named
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Declared
from tacit.privacy.signing import Signer
from tacit.tasks import TaskSet

Answer = Callable[[bytes], bytes]
Make = Callable[..., Any]


def asked(request: bytes) -> tuple[str, int]:
    """What for, and for which round; −1 where it is for none."""
    description = unpacked(request)[0]
    return description["kind"], description.get("number", -1)


# --- sites that are not heard --------------------------------------------------------------------


def test_a_site_that_never_answers_counts_as_tasks_without_rows(federation: Make) -> None:
    there = federation("LowRank", rounds=2)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        silent = site == "at west" and asked(request)[0] == "contribute"
        return [] if silent else [answer(request)]

    coordinate(there.place, there.channel(fault=fault))
    there.require_replay()
    rows = ~np.isin(there.data.task, np.array(there.terms.sites["west"].tasks))
    whole, kept = there.everything, there.data
    few = TaskSet.from_arrays(
        kept.X[rows], kept.y[rows], kept.task[rows], schema=there.terms.schema
    )
    here = there.terms.model(Ledger.in_memory())
    here.fit_tasks(among(few, whole.labels), there.terms.schema)
    _, arrays, _ = folder.read(there.place / "model")
    for name, part in here.shared_.items():
        assert np.array_equal(arrays[f"shared.{name}"], np.asarray(part.value)), name
    assert [line["silent"] for line in there.journal("round")] == [["west"]] * 2


def test_every_invited_site_is_charged_answering_or_not(federation: Make) -> None:
    there = federation(noise="secure")

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        silent = site == "at west" and asked(request)[0] == "contribute"
        return [] if silent else [answer(request)]

    coordinate(there.place, there.channel(fault=fault))
    with Ledger(there.place / folder.LEDGER) as ledger:
        spent = {ledger.statement([label]).epsilon for label in there.terms.labels}
    assert len(spent) == 1
    assert spent.pop() > 0


def test_a_site_that_dies_in_a_round_and_returns_has_missed_nothing(federation: Make) -> None:
    """It answers the next round as if it had been there: it gets the broadcasts in between."""
    heard: list[bytes] = []

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        kind, number = asked(request)
        if site == "at south" and kind == "contribute":
            if number == 1:
                return []
            heard.append(answer(request))
            return heard[-1:]
        return [answer(request)]

    there = federation("LowRank", rounds=4)
    coordinate(there.place, there.channel(fault=fault))
    there.require_replay()
    places = there.terms.places["south"]
    participant, steps = _halves(there, there.terms.model(Ledger.in_memory()))
    state = None
    told = [_told(there, number) for number in range(4)]
    expected = []
    for step, shared in zip(steps, told, strict=True):
        rows, state = participant.contribute(step, shared, state)
        expected.append(rows[places])
    found = [unpacked(content)[1]["rows"] for content in heard]
    for number, rows in zip((0, 2, 3), found, strict=True):
        assert np.array_equal(rows, expected[number]), number


def _halves(there: Any, model: Any) -> tuple[Any, Any]:
    """The participant of everybody's rows, and the steps, as one process has them."""
    home = model._home(there.everything, there.terms.schema, loss_named(model.loss))
    facts = facts_of(home, model._door(there.everything.labels, there.terms.schema))
    return model._participant(home, facts), model._coordinator(facts).steps


def _told(there: Any, number: int) -> Any:
    records = Records.at(there.homes["west"], there.terms)
    return {name: Declared(value) for name, value in records.broadcast(number).items()}


def test_a_full_disk_at_a_site_costs_it_one_round(
    federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, honest = federation("LowRank", rounds=3), files.replace_file
    full = {"now": False}

    def replace_file(path: Any, content: bytes, **more: Any) -> None:
        if full["now"] and "west" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        honest(path, content, **more)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        full["now"] = asked(request) == ("contribute", 1)
        return [answer(request)]

    monkeypatch.setattr(files, "replace_file", replace_file)
    coordinate(there.place, there.channel(fault=fault))
    there.require_replay()
    assert [line["silent"] for line in there.journal("round")] == [[], ["west"], []]
    assert there.journal("refused")[0]["why"] == f"west: it refuses: {COULD_NOT}"


# --- answers that are not what was asked for -----------------------------------------------------


def _rows(content: bytes, change: Callable[[Any], Any]) -> bytes:
    said, arrays = unpacked(content)
    return packed(said, {"rows": change(arrays["rows"])})


def _said(content: bytes, **other: Any) -> bytes:
    said, arrays = unpacked(content)
    return packed(said | other, arrays)


LIES: dict[str, Callable[[bytes], bytes]] = {
    "another dimension": lambda c: _rows(c, lambda rows: rows[:, :-1]),
    "one task more": lambda c: _rows(c, lambda rows: np.vstack([rows, rows[:1]])),
    "not a number": lambda c: _rows(c, lambda rows: rows * np.nan),
    "infinite": lambda c: _rows(c, lambda rows: rows + np.inf),
    "another type": lambda c: _rows(c, lambda rows: rows.astype(np.float32)),
    "another site": lambda c: _said(c, site="south"),
    "another request": lambda c: _said(c, answers="0" * 64),
    "another array": lambda c: packed(unpacked(c)[0], {"models": np.zeros((3, 4))}),
    "too long": lambda c: packed(unpacked(c)[0], {"rows": np.zeros((10**4, 10))}),
    "noise": lambda c: b"\x80\x04\x95" + bytes(100),
    "nothing": lambda c: b"",
    "a pickle": lambda c: b"cos\nsystem\n(S'true'\ntR.",
    "a list": lambda c: packed([1]),  # type: ignore[arg-type] # a liar sends what it likes
}


@pytest.mark.parametrize("lie", LIES)
def test_a_site_that_lies_is_refused_and_named_and_counts_as_silent(
    federation: Make, lie: str
) -> None:
    there = federation()

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        found = answer(request)
        if site == "at west" and asked(request) == ("contribute", 0):
            return [LIES[lie](found)]
        return [found]

    coordinate(there.place, there.channel(fault=fault))
    there.require_replay()
    assert there.journal("round")[0]["silent"] == ["west"]
    assert [line["site"] for line in there.journal("refused")] == ["west"]


def test_a_doubled_and_a_replayed_answer_count_once(federation: Make) -> None:
    there = federation()
    before: dict[str, bytes] = {}

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        found = answer(request)
        old, before[site] = before.get(site, b""), found
        if asked(request)[0] != "contribute":
            return [found]
        return [old, found, found, _rows(found, lambda rows: rows + 1)]

    coordinate(there.place, there.channel(fault=fault))
    there.require_replay()
    here = there.terms.model(Ledger.in_memory()).fit_tasks(there.everything, there.terms.schema)
    _, arrays, _ = folder.read(there.place / "model")
    assert np.array_equal(arrays["shared.mean"], np.asarray(here.shared_["mean"].value))


# --- a coordinator that dies ---------------------------------------------------------------------


class Killed(BaseException):
    """As if by kill -9: nothing catches it."""


@pytest.mark.parametrize("where", ["between draw and release", "after release", "at the end"])
@pytest.mark.parametrize("learner", ["MeanRegularized", "LowRank"])
def test_a_coordinator_that_dies_goes_on_and_spends_once(
    federation: Make, monkeypatch: pytest.MonkeyPatch, where: str, learner: str
) -> None:
    there = federation(learner, noise="secure", rounds=2)
    persist, count = Ledger._persist, {"left": 2}

    def dying(self: Ledger, *given: Any) -> Any:
        count["left"] -= 1
        if count["left"] == 0 and where == "between draw and release":
            raise Killed
        found = persist(self, *given)
        if count["left"] == 0 and where == "after release":
            raise Killed
        return found

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        if where == "at the end" and site == "at west" and asked(request)[0] == "seal":
            raise Killed
        return [answer(request)]

    monkeypatch.setattr(Ledger, "_persist", dying)
    with pytest.raises(Killed):
        coordinate(there.place, there.channel(fault=fault))
    monkeypatch.setattr(Ledger, "_persist", persist)
    again = there.channel()
    coordinate(there.place, again)
    there.require_replay()
    asked_again = [asked(request) for site, request in again.sent if site == "at west"]
    if where == "after release":  # what is on the ledger is not asked for
        assert ("contribute", 1) not in asked_again


def test_a_run_that_goes_on_does_not_wait_for_who_signed_and_is_away(
    federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = federation(noise="secure", rounds=2, seconds=2.0)
    persist = Ledger._persist

    def dying(self: Ledger, *given: Any) -> Any:
        persist(self, *given)
        raise Killed

    monkeypatch.setattr(Ledger, "_persist", dying)
    with pytest.raises(Killed):
        coordinate(there.place, there.channel())
    monkeypatch.setattr(Ledger, "_persist", persist)
    without = there.channel()
    del without.nodes["at west"]
    coordinate(there.place, without)
    assert there.journal("away")[0]["sites"] == ["west"]
    assert there.journal("round")[-1]["silent"] == ["west"]
    coordinate(there.place, there.channel())  # it is back, and gets what it missed
    there.require_replay()


# --- terms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"budget": Budget(9.0)},
        {"parameters": {"rounds": 3}},
        {"seconds": 1.0},
        {"noise": "secure", "seed": None},
        {"coordinator": Signer.new().fingerprint},
    ],
    ids=lambda other: ", ".join(other),
)
def test_a_site_with_other_terms_refuses_and_says_which(
    federation: Make, other: dict[str, Any]
) -> None:
    there = federation()
    channel = there.channel()
    site = there.site("west", replace(there.terms, **other))
    channel.nodes["at west"] = site.answer
    with pytest.raises(Refused, match=f"west: .*{', '.join(sorted(other))}"):
        coordinate(there.place, channel)
    assert not any(asked(request)[0] == "contribute" for _, request in channel.sent)


def test_a_site_whose_code_is_another_refuses(
    federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = federation()
    monkeypatch.setattr("tacit.federation.terms.code_digest", lambda: "another")
    said, _ = unpacked(
        there.site("west").answer(packed({"kind": "agree", "terms": there.terms.to_dict()}))
    )
    assert "not that of the terms" in said["refused"]


def test_a_site_that_signs_with_another_key_is_no_site(federation: Make) -> None:
    there = federation()
    channel = there.channel()
    channel.nodes["at west"] = replace(there.site("west"), signer=Signer.new()).answer
    with pytest.raises(Refused, match="west: it signed with another key"):
        coordinate(there.place, channel)


def test_a_stranger_is_noted_and_stops_nothing(federation: Make) -> None:
    there = federation()
    channel = there.channel()
    channel.nodes["elsewhere"] = replace(there.site("west"), name="east").answer
    coordinate(there.place, channel)
    there.require_replay()
    assert [line["site"] for line in there.journal("refused")] == ["east"]


def _opened(there: Any) -> tuple[Any, bytes]:
    """A site that agreed, and the request for the first round that it has answered."""
    requests: list[bytes] = []

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        if site == "at west" and asked(request) == ("contribute", 0):
            requests.append(request)
        return [answer(request)]

    coordinate(there.place, there.channel(fault=fault))
    return there.site("west"), requests[0]


def test_a_coordinator_that_asks_twice_gets_the_same_bytes_and_never_others(
    federation: Make,
) -> None:
    there = federation()
    site, request = _opened(there)
    first = site.answer(request)
    assert site.answer(request) == first
    assert "rows" in unpacked(first)[1]
    description, arrays = unpacked(request)
    other = {**arrays, "0/mean": arrays["0/mean"] + 1}
    said, rows = unpacked(site.answer(packed(description, other)))
    assert "with other numbers" in said["refused"]
    assert not rows
    said, rows = unpacked(site.answer(packed(description | {"terms": "0" * 64}, arrays)))
    assert "other terms" in said["refused"]
    assert not rows
    planned = {"mu": description["planned"]["mu"] * 2, "pure": None}
    said, rows = unpacked(site.answer(packed(description | {"planned": planned}, arrays)))
    assert "planned otherwise" in said["refused"]
    assert not rows


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        packed({"kind": "give me the rows"}),
        packed({"kind": "contribute"}),
        packed({"kind": "agree", "terms": None}),
    ],
)
def test_a_site_answers_nothing_that_it_does_not_know(federation: Make, request_: bytes) -> None:
    there = federation()
    said, arrays = unpacked(there.site("west").answer(request_))
    assert said["refused"]
    assert not arrays


def test_a_site_is_asked_nothing_before_it_agreed(federation: Make) -> None:
    there = federation()
    about = {"kind": "contribute", "terms": there.terms.digest, "number": 0}
    planned = {"planned": {"mu": 1.0, "pure": None}}
    said, arrays = unpacked(there.site("west").answer(packed(about | planned)))
    assert "before the terms were agreed on" in said["refused"]
    assert not arrays
