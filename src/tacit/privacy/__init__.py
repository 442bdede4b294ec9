"""Budgets, mechanisms, accounting and the ledger: the one door for private numbers."""
