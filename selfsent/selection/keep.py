"""What is kept of a selection: its encoders, on fewer dimensions where that is asked, and what each width finds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.encoder.principal_axes import learn_axes, turn_encoder
from selfsent.encoder.save import save_encoder
from selfsent.encoder.search_settings import write_search_settings
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.choose import Choice, keep_base
from selfsent.selection.held_out_tests import figure
from selfsent.selection.judging import JUDGEMENTS, Ask, judge, weigh
from selfsent.selection.scoreboard import Candidate
from selfsent.storage import atomic
from selfsent.storage.run_folder import SELECTION

MODEL, OTHER = "model", "model-other"
_WIDTHS = (512, 256, 128, 64)


def ask_person(folder: Path, examples: Sequence[Mapping[str, Any]], choice: Choice, ask: Ask | None) -> Choice:
    """Have a person judge what base and kept encoder find, or take what one said before; return what follows."""
    path, names = folder / JUDGEMENTS, (choice.base.name, choice.kept.name)
    if ask is not None:
        if not examples or choice.kept is choice.base or choice.kept is not choice.jobs["search"]:
            why = "no other encoder for search" if examples else "nothing is searched"
            said = f"There was nothing to judge: {choice.kept.name} is kept, and {why}."
            return replace(choice, sentences=[*choice.sentences, said])
        judged: list[dict[str, str]] = []
        for row in judge(examples, *names, ask):  # each is kept at once; without any, those of before are
            for name in (SELECTION, MODEL):  # of a finished selection, which is decided again
                atomic.remove(folder / name)
            atomic.write_sealed(path, {"judged": (judged := [*judged, row])})
    if not path.is_file() or choice.kept is choice.base:
        return choice
    judged = atomic.read_sealed(path, f"delete {path}, and nothing that it says is counted")["judged"]
    overruled, said = weigh(judged, *names)
    return keep_base(choice, said) if overruled else replace(choice, sentences=[*choice.sentences, said])


def save_kept(folder: Path, choice: Choice, work: Workspace) -> tuple[Choice, dict[str, str], dict[int, float]]:
    """Save what was kept, and for both jobs the encoder of the other one.

    Returns:
        The choice, the folder of each, and what so many dimensions find where a number of them was asked for.
    """
    other = next((each for each in choice.jobs.values() if each is not choice.kept), choice.kept)
    folders, width = {choice.kept.name: MODEL}, work.config.dimensions
    if work.config.purpose == "both" and other is not choice.kept:
        folders[other.name] = OTHER
    if width and choice.search:  # the encoders of a smaller pair are not told apart in its vectors
        choice = replace(choice, search=replace(choice.search, weights=()))
    for candidate in (other, choice.kept):
        if candidate.name in folders and not atomic.cached(folder / folders[candidate.name]):
            encoder = candidate.open()
            if width and width != encoder.get_embedding_dimension():
                encoder = turn_encoder(encoder, _axes(candidate, work)[:, :width])
            with atomic.build_folder(folder / folders[candidate.name]) as scratch:
                save_encoder(encoder, scratch)
                if choice.search and candidate is choice.jobs["search"]:
                    write_search_settings(scratch, choice.search)
                    atomic.seal(scratch)
    return choice, folders, _score_widths(choice.kept, work) if width else {}


def _score_widths(candidate: Candidate, work: Workspace) -> dict[int, float]:
    """Return by width, all dimensions first, what the first axes of an encoder find of the documents that decide."""
    axes, board = _axes(candidate, work), work.board
    whole, vectors = len(axes), board.vectors.of(candidate, "test")
    widths = {whole, min(whole, work.config.dimensions or whole), *(width for width in _WIDTHS if width < whole)}
    test = board.vectors.tests["test"]
    scores = {width: test.score(vectors @ axes[:, :width], candidate.name) for width in sorted(widths, reverse=True)}
    found = {width: figure(results, board.measure) for width, results in scores.items()}
    return {width: value for width, value in found.items() if value is not None}


def say_widths(widths: dict[int, float]) -> list[str]:
    """Say what each width finds."""
    by_width = ", ".join(f"{width}: {value:.1f}" for width, value in widths.items())
    return [f"By dimensions, on documents that chose nothing: {by_width}."] if widths else []


def _axes(candidate: Candidate, work: Workspace) -> Float[np.ndarray, "D D"]:
    """Return all principal axes of an encoder's vectors of the text."""
    path = work.folder / f"{candidate.slug}.axes.npy"
    if path.is_file():
        atomic.verify(path, f"delete {path} and add --resume to compute it again")
    else:
        encoder = candidate.open()
        axes = learn_axes(encoder, work.sample(), encoder.get_embedding_dimension() or 0, progress=work.progress)
        with atomic.sealed_file(path) as file:
            np.save(file, axes)
    return np.load(path)
