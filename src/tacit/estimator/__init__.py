"""The fitted estimator: whose ledger (families.py), what may leave (leaving.py), the contract of
linear learners (contract.py), and their tasks at home (home.py)."""

from tacit.estimator.contract import MultiTaskEstimator, PrivateLearner
from tacit.estimator.home import Home
from tacit.parameters import learner

__all__ = ["Home", "MultiTaskEstimator", "PrivateLearner", "learner"]
