"""A site's clients with networks of their own (S2), or its silos: as a site's tasks, for another
contract.

Secret coins are drawn once and kept on the disk of whoever draws them, so that a process that died
goes on with the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.arrays import Array
from tacit.engine import Participant, Step
from tacit.federation.own_tasks import Planned, in_places
from tacit.federation.terms import Terms
from tacit.folder import Contents
from tacit.tasks import TaskSet

if TYPE_CHECKING:
    from tacit.estimator.fitted import Fitted
    from tacit.neural.silos.site_silos import SiteSilos
    from tacit.neural.site_clients import SiteClients
    from tacit.privacy.ledger import Ledger

COINS = "coins.key"


def keep_coins(model: Any, secret: bytes) -> None:
    """The learner draws its secret coins from these, if it draws any."""
    from tacit.neural.secret_streams import Coins

    model._secret = Coins(secret)


def _learner(terms: Terms, secret: bytes) -> Any:
    model = terms.model()
    keep_coins(model, secret)
    return model


@dataclass(frozen=True)
class OwnClients:
    """What a site computes with: as OwnTasks."""

    clients: SiteClients

    @classmethod
    def of(cls, terms: Terms, site: str, tasks: TaskSet, secret: bytes) -> OwnClients:
        """Refuses rows of a client that is another site's."""
        from tacit.neural.site_clients import SiteClients

        whole = in_places(terms, site, tasks)
        return cls(SiteClients.of(_learner(terms, secret), whole, terms.places[site]))

    @property
    def places(self) -> tuple[int, ...]:
        """Of its own clients."""
        return tuple(self.clients.places.tolist())

    def halves(self, terms: Terms, planned: Planned) -> tuple[Participant, tuple[Step, ...]]:
        """The participant of its own clients alone, and the steps of the run."""
        return self.clients, self.clients.steps

    def fitted(self, found: Contents, terms: Terms, state: Array | None) -> Fitted:
        """The learner with its own clients' models, of what everybody got."""
        model = self.clients.model._filled(*found)
        model._set_models(self.clients.at_home(model.shared_, state), terms.labels)
        return model


@dataclass(frozen=True)
class OwnSilos:
    """The same where it is people inside silos who are protected, from everybody outside."""

    silos: SiteSilos

    @classmethod
    def of(cls, terms: Terms, site: str, tasks: TaskSet, secret: bytes) -> OwnSilos:
        """Refuses rows of a silo that is another site's."""
        from tacit.neural.silos.site_silos import SiteSilos

        whole = in_places(terms, site, tasks)
        return cls(SiteSilos.of(_learner(terms, secret), whole, terms.schema, terms.places[site]))

    @property
    def places(self) -> tuple[int, ...]:
        """Of its own silos."""
        return self.silos.places

    def silo_halves(self, terms: Terms, ledger: Ledger) -> Any:
        """The halves of silos that release from this ledger, and the door of each."""
        terms.require_secure_noise()
        self.silos.model.ledger = ledger
        return self.silos.halves()

    def fitted(self, found: Contents, terms: Terms, state: Array | None) -> Fitted:
        """The learner with what everybody got, and its own silos' models beside it."""
        model = self.silos.model._filled(*found)
        models, home = self.silos.at_home(model.shared_)
        model._set_models(models, terms.labels, home)
        return model
