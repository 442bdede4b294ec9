"""The papers' figures and tables as declarations, and what runs them again.

One file a paper (s1.py … s4.py); a figure is a short declaration of data, learners, grid and claims
(declared.py). ``tacit reproduce`` runs them.
"""
