"""Every figure and table of the four papers, by name."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from tacit.errors import InvalidInput
from tacit.experiments.declared import Experiment

PAPERS = {
    "S1": "Model-Protected Multi-Task Learning (Liang et al.)",
    "S2": "Private Multi-Task Learning: Formulation and Applications (Hu, Wu, Smith)",
    "S3": "Privacy-Preserving Distributed MTL with Asynchronous Updates (Xie et al.)",
    "S4": "Task-aware Privacy Preservation for Multi-dimensional Data (Cheng et al.)",
}


def every_figure() -> dict[str, Experiment]:
    """In the order of the papers."""
    declared = (import_module(f"tacit.experiments.{paper.lower()}").FIGURES for paper in PAPERS)
    return {figure.name: figure for figures in declared for figure in figures}


def chosen(name: str) -> list[Experiment]:
    """The figure of that name, those of a paper ("S1"), or "all"; InvalidInput tells near names."""
    known = every_figure()
    paper = {figure.name: figure for figure in known.values() if figure.name.startswith(f"{name}-")}
    if name == "all" or paper:
        return list((paper or known).values())
    by_name = {known_name.lower(): figure for known_name, figure in known.items()}
    if name.lower() in by_name:
        return [by_name[name.lower()]]
    near = get_close_matches(name.lower(), by_name, n=3, cutoff=0.5)
    meant = ", ".join(by_name[n].name for n in near)
    hint = f"did you mean {meant}?" if meant else "tacit reproduce --list names them"
    raise InvalidInput(f"no figure is called {name!r}; {hint}")
