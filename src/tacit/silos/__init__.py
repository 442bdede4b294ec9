"""People inside silos: each is protected from everybody outside, the coordinator too.

With five to fifty hospitals, hiding a *whole hospital* leaves nothing to learn. What a hospital
must hide is a patient. So the unit is a person's rows in one silo, every silo spends from a ledger
run of its own, and what it sends is a release.

**Where things are**

- coding.py: declared columns as cells and coordinates, and models back
- silo_plan.py: what is promised, what each release weighs and costs, from public numbers
- halves.py: silos with their rows, and the coordinator that reads what they release
- moments.py, hierarchy.py: empirical Bayes over noisy sums, aware of their noise
- silo_models.py: what a silo does with its own rows, which is free
- silo_learner.py: what a linear learner does where people are protected; learners differ in how the
  variances of the prior are tied

The mechanism is privacy/mechanisms/block_moments.py, the engine engine/silo_rounds.py.
docs/silos.md has the derivation and the numbers.
"""
