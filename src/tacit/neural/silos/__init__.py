"""People inside silos, with networks: each is protected from everybody outside.

- row_gradients.py: the gradient of every row's loss, of all silos at once, in factors
- people_sums.py: the mechanism: clipped, a person counted once, summed, with noise
- dp_sgd.py: the two halves of a round, MR-MTL and FedAvg
- inside_silos.py: what the estimator does where people are protected
- site_silos.py: the silos of one site, where somebody else runs the rounds

The words of the promise are in privacy/people.py, the engine in engine/silo_rounds.py.
docs/silos.md has the derivation and the numbers.
"""
