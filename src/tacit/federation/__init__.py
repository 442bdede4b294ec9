"""Flower: one more engine. The same participants and coordinators, where the data are."""
