"""Soon."""

FIGURES = ()
