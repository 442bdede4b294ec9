"""Sums alone: the coordinator opens noisy sums and nothing else, whoever helps it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from secrets import token_bytes
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import tacit
from tacit import folder
from tacit.certificate import documents
from tacit.certificate.checks import checked
from tacit.errors import InvalidInput, Refused
from tacit.federation import noise_shares
from tacit.federation.coordinator import coordinate
from tacit.federation.masking import agreed_key, from_shares, in_shares, mask, pairwise
from tacit.federation.masking import public_key as public
from tacit.federation.noise_shares import Masked, closeness, enough, shaped, share, threshold
from tacit.federation.wire import packed, unpacked
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import GaussianSum, SymmetricGaussian
from tacit.privacy.mechanisms.noises import GaussianNoise
from tacit.privacy.release import Key
from tacit.privacy.signing import Signer

ALPHA = 1e-6
Answer = Callable[[bytes], bytes]
Make = Callable[..., Any]


def kind_of(request: bytes) -> str:
    return str(unpacked(request)[0]["kind"])


@pytest.fixture
def hidden(federation: Make) -> Any:
    """Five sites, four of them honest and heard."""
    return federation(noise="secure", fewest=4, rounds=1)


# --- the parts -----------------------------------------------------------------------------------


def test_masks_of_all_cancel_and_those_of_some_do_not() -> None:
    keys = {name: token_bytes(32) for name in "abcd"}
    shown = {name: public(key) for name, key in keys.items()}

    def total(names: str) -> Any:
        masks = [pairwise(n, keys[n], {m: shown[m] for m in "abcd" if m != n}, 50) for n in names]
        return sum(masks[1:], masks[0])

    assert not total("abcd").any()
    assert np.count_nonzero(total("abc")) > 40
    assert (mask(keys["a"], 50) == mask(keys["a"], 50)).all()


def test_a_secret_opens_with_enough_shares_and_not_with_fewer() -> None:
    secret, holders = token_bytes(32), list("abcde")
    shares = in_shares(secret, holders, 3)
    some = {name: shares[name] for name in "bde"}
    assert from_shares(some, holders, 3) == secret
    with pytest.raises(InvalidInput, match="2 shares"):
        from_shares({name: shares[name] for name in "bd"}, holders, 3)
    with pytest.raises(InvalidInput, match="do not fit"):  # but for one in 2^265
        from_shares(some | {"b": some["b"] + 1}, holders, 3)


@pytest.mark.parametrize("sites", range(2, 12))
def test_two_stories_never_give_both_secrets(sites: int) -> None:
    """With n − h on its side a coordinator has their shares of both, and honest ones' of one."""
    for fewest in range(2, sites + 1):
        helpers = sites - fewest
        most = helpers + fewest // 2  # the smaller of the two sets it can make of honest sites
        assert most < threshold(sites, fewest)
        assert enough(sites, fewest) >= fewest


# --- noise ---------------------------------------------------------------------------------------


def _honest_noise(mechanism: GaussianSum, sites: int, fewest: int, size: int) -> Any:
    """What n − h colluders do not know of the sum: everything but their own parts."""
    nothing = np.zeros(size, dtype=np.uint64)
    masked = Masked(mechanism, fewest, nothing)
    rows = np.zeros((1, size))
    whole = [masked.release(rows, None) for _ in range(sites)]
    total = sum(whole[1:], whole[0])
    known = sum(whole[fewest + 1 :], whole[fewest]) if fewest < sites else nothing
    return shaped(mechanism, fewest, total - known, (1, size))


@pytest.mark.parametrize(("sites", "fewest"), [(5, 4), (5, 2), (12, 5)])
def test_colluders_are_left_with_the_noise_that_is_certified(sites: int, fewest: int) -> None:
    size, mechanism = 20_000, GaussianSum(1.0, 3.0)
    found = _honest_noise(mechanism, sites, fewest, size)
    ratio = float((found**2).sum()) / 3.0**2
    assert chi2.ppf(ALPHA / 2, size) < ratio < chi2.isf(ALPHA / 2, size)


def test_shares_of_the_noise_by_all_sites_would_leave_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same test refutes σ²/n: what colluders are left with is h/n of it."""
    sites, fewest, size = 5, 4, 20_000
    mechanism = GaussianSum(1.0, 3.0)
    monkeypatch.setattr(
        noise_shares, "share", lambda m, _: GaussianSum(m.clip_norm, m.sigma / math.sqrt(sites))
    )
    found = _honest_noise(mechanism, sites, fewest, size)
    assert float((found**2).sum()) / 3.0**2 < chi2.ppf(ALPHA / 2, size)


def test_rounded_noise_in_shares_is_as_close_as_is_said() -> None:
    """The bound of one coordinate, at a resolution at which it can be computed exactly."""
    from scipy.stats import norm

    s, h = 8.0, 3
    k = np.arange(-400, 401)

    def rounded(deviation: float) -> Any:
        return norm.cdf((k + 0.5) / deviation) - norm.cdf((k - 0.5) / deviation)

    one = rounded(s)
    several = np.convolve(np.convolve(one, one), one)[len(k) - 1 : 2 * len(k) - 1]
    distance = 0.5 * np.abs(several - rounded(math.sqrt(h) * s)).sum()
    assert distance <= (h + 1) * 0.021 / s**2
    assert closeness(h) == (h + 1) * 0.021 / 2.0**52


def test_a_run_whose_numbers_need_more_of_delta_than_is_spared_is_refused() -> None:
    from tacit import Budget

    noise_shares.require_close(Budget(4.0), 4, 10**6)
    with pytest.raises(InvalidInput, match="of delta"):
        noise_shares.require_close(Budget(20.0, 1e-9), 100, 10**6)


# --- the protocol --------------------------------------------------------------------------------


def _exact(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise what is opened can be computed."""
    monkeypatch.setattr(GaussianNoise, "rounded", lambda self, shape: np.zeros(shape, np.int64))


@pytest.mark.parametrize("learner", ["MeanRegularized", "LowRank", "GroupSparse"])
def test_what_is_opened_is_the_sum_of_all_sites(
    federation: Make, monkeypatch: pytest.MonkeyPatch, learner: str
) -> None:
    there = federation(learner, noise="secure", fewest=4, rounds=1)
    _exact(there, monkeypatch)
    seen: list[Any] = []
    counts = Masked.release

    def noted(self: Masked, contributions: Any, rng: Any, shares: Any = None) -> Any:
        seen.append((self, np.array(contributions)))
        return counts(self, contributions, rng, shares)

    monkeypatch.setattr(Masked, "release", noted)
    coordinate(there.place, there.channel())
    with Ledger(there.place / folder.LEDGER) as ledger:
        key = next(e.payload for e in ledger.entries() if e.kind == "output")
        found = ledger.released(Key(key["run"], key["round"], key["party"]))
    first = seen[:5]
    part = share(first[0][0].of, 4)
    total = sum(part.counts(rows) for _, rows in first).astype(np.uint64)  # type: ignore[union-attr]
    expected = shaped(first[0][0].of, 4, total, (6, first[0][1].shape[1]))
    assert found is not None
    assert np.array_equal(found.value, expected)
    assert isinstance(first[0][0].of, GaussianSum | SymmetricGaussian) or learner == "GroupSparse"


def test_everybody_records_what_was_spent_and_the_certificate_says_from_whom(hidden: Any) -> None:
    out = coordinate(hidden.place, hidden.channel())
    model = tacit.MeanRegularized.load(out)
    said = model.guarantee_
    assert said.proven
    assert said.secure_noise
    assert said.adversary.startswith("the operator and all other tasks")
    assert said.not_covered[0].startswith(
        "more than 1 of 5 sites colluding with the operator or dropping out"
    )
    assert said.delta == hidden.terms.budget.delta
    assert checked(out, hidden.terms.coordinator).ok, checked(
        out, hidden.terms.coordinator
    ).problems
    with Ledger(hidden.place / folder.LEDGER) as ledger:
        whole = [e.payload["event"] for e in ledger.entries() if e.kind == "spend"]
    for home in hidden.homes.values():
        with Ledger(home / folder.LEDGER) as own:
            assert [e.payload["event"] for e in own.entries() if e.kind == "spend"] == whole
        for hand_out in (home / "hand-outs").iterdir():
            assert checked(hand_out, hidden.terms.coordinator).ok


def test_a_site_that_drops_out_after_the_keys_is_subtracted(
    hidden: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _exact(hidden, monkeypatch)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        gone = site == "at east" and kind_of(request) in ("masked", "unmask")
        return [] if gone else [answer(request)]

    coordinate(hidden.place, hidden.channel(fault=fault))
    lines = hidden.journal("round")
    assert {tuple(line["silent"]) for line in lines} == {("east",)}
    with Ledger(hidden.place / folder.LEDGER) as ledger:
        outputs = [e.payload for e in ledger.entries() if e.kind == "output"]
        for each in outputs:
            found = ledger.released(Key(each["run"], each["round"], each["party"]))
            assert found is not None
            assert np.linalg.norm(found.value) <= 6  # six tasks at norm one; a mask has 2^64 steps


def test_with_too_few_nothing_is_opened(hidden: Any) -> None:
    asked: list[str] = []

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        asked.append(kind_of(request))
        gone = site in ("at east", "at west") and kind_of(request) == "masked"
        return [] if gone else [answer(request)]

    with pytest.raises(Refused, match="nothing is opened"):
        coordinate(hidden.place, hidden.channel(fault=fault))
    assert "unmask" not in asked
    with Ledger(hidden.place / folder.LEDGER) as ledger:
        assert not [e for e in ledger.entries() if e.kind == "spend"]


def _last(there: Any, site: str, kind: str) -> bytes:
    """The last request of this kind to a site, after a whole run."""
    channel = there.channel()
    coordinate(there.place, channel)
    found: list[bytes] = [r for at, r in channel.sent if at == f"at {site}" and kind_of(r) == kind]
    return found[-1]


def test_a_site_opens_one_set_a_round(hidden: Any) -> None:
    request = _last(hidden, "west", "unmask")
    site = hidden.site("west")
    description, _ = unpacked(request)
    assert "seeds" in unpacked(site.answer(request))[0]
    for heard in (
        [name for name in description["heard"] if name != "east"],
        description["heard"][:3],
        [name for name in description["heard"] if name != "west"],
        [*description["heard"], "elsewhere"],
    ):
        said, _ = unpacked(site.answer(packed(description | {"heard": heard})))
        assert "refused" in said
        assert "seeds" not in said


def test_no_site_is_asked_for_rows_that_was_promised_sums(hidden: Any) -> None:
    request = _last(hidden, "west", "masked")
    description, arrays = unpacked(request)
    told = {name: a for name, a in arrays.items() if not name.startswith("box/")}
    plain = {k: description[k] for k in ("terms", "number", "planned")} | {"kind": "contribute"}
    said, rows = unpacked(hidden.site("west").answer(packed(plain, told)))
    assert "no site answers that where sums are sent" in said["refused"]
    assert not rows


def test_a_coordinator_cannot_put_a_key_of_its_own_in_a_sites_place(hidden: Any) -> None:
    request = _last(hidden, "west", "masked")
    description, arrays = unpacked(request)
    own = documents.signed(
        {k: v for k, v in description["masks"]["east"].items() if k != "signature"}
        | {"mask": public(token_bytes(32)).hex()},
        Signer.new(),
    )
    forged = description | {"masks": description["masks"] | {"east": own}}
    said, rows = unpacked(hidden.site("west").answer(packed(forged, arrays)))
    assert "signed by another" in said["refused"]
    assert not rows


def test_what_a_site_sends_says_nothing_without_the_others(
    hidden: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its masks every number is as good as any other: uniform modulo 2^64."""
    _exact(hidden, monkeypatch)
    sent: list[Any] = []

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        found = answer(request)
        if kind_of(request) == "masked":
            sent.append(unpacked(found)[1]["rows"])
        return [found]

    coordinate(hidden.place, hidden.channel(fault=fault))
    numbers = np.concatenate(sent)
    high = (numbers >> np.uint64(60)).astype(int)  # 16 cells
    counts = np.bincount(high, minlength=16)
    statistic = float(((counts - len(high) / 16) ** 2 / (len(high) / 16)).sum())
    assert statistic < chi2.isf(ALPHA, 15)
    assert agreed_key(token_bytes(32), public(token_bytes(32)), "x") != agreed_key(
        token_bytes(32), public(token_bytes(32)), "x"
    )


def test_a_coordinator_that_plans_more_than_the_budget_gets_nothing(hidden: Any) -> None:
    refusals: list[Any] = []

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        if site == "at west" and kind_of(request) == "masked":
            description, arrays = unpacked(request)
            more = {"mu": description["planned"]["mu"] * 1.01, "pure": None}
            refusals.append(unpacked(answer(packed(description | {"planned": more}, arrays))))
            return []
        return [answer(request)]

    coordinate(hidden.place, hidden.channel(fault=fault))
    assert all("refused" in said and not rows for said, rows in refusals)
    with Ledger(hidden.homes["west"] / folder.LEDGER) as own:
        assert not [entry for entry in own.entries() if entry.kind == "spend"]
