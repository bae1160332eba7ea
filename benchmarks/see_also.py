"""The verdict's score held against what people left beside the text: links "See also", and tags.

    python benchmarks/see_also.py OUT FOLDER... --derived builtin --derived all-MiniLM-L6-v2

A page is its description without its name and without the links.  For every page with links, the others are ranked by
cosine; MRR@10 is that of the nearest linked page, recall@10 the share of the linked ones among ten.  Beside it, on the
same pages, the verdict's score, which sees no link.  Reported: both of every encoder, BM25, Spearman's correlation of
the two, and by how much the verdict favours word vectors: the mean residual of those after a line through the others.

Pages come from this machine: /usr/share/man (English, as ``man`` renders them; not those of gcloud, whose links are
only release tracks), the numpydoc sections of installed packages, and the descriptions of Debian's packages in apt's
lists (``apt-get -o Acquire::Languages=en update`` brings them), of which two are linked where they share at least two
of their tags on purpose and subject (``FACETS``), and two thirds of those of either.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

import harness
import numpy as np
from scipy import stats
from verdict_validation import Candidate, correlation, derived, folder, remembered

from selfsent.corpus import python_docs
from selfsent.corpus.sources import Document
from selfsent.encoder.quantize import unit
from selfsent.evaluation.label_free import document_tests
from selfsent.evaluation.label_free.documents import parse_rows
from selfsent.evaluation.label_free.scores import SCORE, score_bm25, score_vectors
from selfsent.text.bm25 import bm25_scores

WORDS = 40  # of a page
MOST = 2500  # pages of a source
DOCUMENTS = 500  # for the verdict's tests
FOLDER = Path("/usr/share/man")
APT = Path("/var/lib/apt/lists")
FACETS = ("use", "works-with", "works-with-format", "field", "protocol", "game", "network", "web", "security", "mail")
_LINK = re.compile(r"([\w.+:@-]+)\s?\((\d\w*)\)")


def manual_pages() -> list[dict]:
    """Render the manual pages, and return names, text and linked names of each."""
    files = [
        file
        for section in sorted(FOLDER.glob("man[1-8]"))
        for file in sorted(section.iterdir())
        if not file.name.startswith("gcloud") and not file.is_symlink()
    ]
    with ThreadPoolExecutor(2) as pool:
        return [page for page in pool.map(_manual_page, files) if page]


def _manual_page(file: Path) -> dict | None:
    source = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    if source.lstrip().startswith(b".so "):
        return None
    command = ["groff", "-man" if b".SH" in source else "-mandoc", "-t", "-Tascii", "-P-cbou", "-rLL=2000n", "-rHY=0"]
    shown = subprocess.run(command, input=source, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
    sections: dict[str, str] = defaultdict(str)
    current = ""
    for line in shown.stdout.decode("ascii", errors="replace").splitlines():
        if line and not line[0].isspace():
            current = line.strip().upper()
        else:
            sections[current] += " " + line.strip() + ("\n" if not line.strip() else "")
    names, _, summary = sections["NAME"].strip().partition(" - ")
    described = " ".join(sections["DESCRIPTION"].split())
    linked = {f"{name}({number[0]})" for name, number in _LINK.findall(sections["SEE ALSO"])}
    if not summary or len(described.split()) < 20:
        return None
    number = file.name.removesuffix(".gz").rpartition(".")[2][0]
    own = [name.strip() for name in names.replace("\n", " ").split(",")] + [
        file.name.removesuffix(".gz").rpartition(".")[0]
    ]
    return {
        "names": sorted({f"{name}({number})" for name in own}),
        "summary": " ".join(summary.split()) + ".",
        "text": described,
        "links": sorted(linked),
    }


def package_pages() -> list[dict]:
    """Read the descriptions of Debian's packages, and which of them have nearly the same tags."""
    if not (described := sorted(APT.glob("*_dists_*_main_i18n_Translation-en*"))):
        raise SystemExit(f"no descriptions in {APT}: run apt-get -o Acquire::Languages=en update, or choose a --source")
    pages = [page for file in described for page in map(_package_page, _stanzas(file)) if page]
    tags = {
        fields["Package"]: {tag for tag in re.split(r",\s*", fields["Tag"]) if tag.partition("::")[0] in FACETS}
        for file in sorted(APT.glob("*_dists_*_main_binary-*_Packages*"))
        for fields in _stanzas(file)
        if "Tag" in fields
    }
    pages = list({page["text"]: page for page in pages if len(tags.get(page["names"][0], ())) >= 2}.values())
    holders = defaultdict(set)
    for number, page in enumerate(pages):
        for tag in tags[page["names"][0]]:
            holders[tag].add(number)
    for number, page in enumerate(pages):
        own = tags[page["names"][0]]
        shared = Counter(other for tag in own for other in holders[tag] if other != number)
        both = {pages[other]["names"][0]: count for other, count in shared.items() if count >= 2}
        page["links"] = sorted(name for name, count in both.items() if 3 * count >= 2 * len(own | tags[name]))
    return pages


def _stanzas(file: Path) -> Iterator[dict[str, str]]:
    """Yield the stanzas of a list of apt, whatever it is compressed with; a field's further lines are joined to it."""
    command = ["/usr/lib/apt/apt-helper", "cat-file", str(file)]
    text = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    for stanza in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1].isspace():
                fields[name] += "\n" + line.strip()
            else:
                name, _, value = line.partition(": ")
                fields[name] = value
        if fields:
            yield fields


def _package_page(fields: dict[str, str]) -> dict | None:
    summary, _, text = fields.get("Description-en", "").partition("\n")
    prose = [line for line in text.splitlines() if line not in (".", "") and not line.startswith(("*", "-"))]
    described = " ".join(" ".join(prose).split())
    if len(described.split()) < 20:
        return None
    return {"names": [fields["Package"]], "summary": summary.strip(" .") + ".", "text": described, "links": []}


def docstring_pages() -> list[dict]:
    """Read the docstrings of installed packages, and the names in their section "See Also"."""
    kept = {row["title"]: row for row in python_docs.python_documents()}
    pages, packages = [], set()
    for title, docstring in python_docs.read_docstrings(python_docs.source_files()):
        if title not in kept:
            continue
        section = re.search(r"See Also\n\s*-{4,}\n(.*?)(?:\n\s*\n\s*\w[^\n]*\n\s*-{4,}|\Z)", docstring, re.DOTALL)
        links = []
        for line in section[1].splitlines() if section else ():
            head = re.match(r"\s*:?(?:\w+:)?`?~?([\w., ]+?)`?\s*(?::|$)", line)
            links += (
                [name.strip() for name in head[1].split(",") if re.fullmatch(r"\s*[\w.]+\s*", name)] if head else []
            )
        row = kept.pop(title)
        if links:
            packages.add(title.partition(".")[0])
        pages.append({"names": [title], "summary": row["summary"], "text": row["text"], "links": links})
    return _resolved([page for page in pages if page["names"][0].partition(".")[0] in packages])


def _resolved(pages: list[dict]) -> list[dict]:
    """Turn names as written into qualified ones: the one that shares most with the page's own."""
    ends = defaultdict(list)
    for page in pages:
        ends[page["names"][0].rpartition(".")[2]].append(page["names"][0])
    for page in pages:
        own, resolved = page["names"][0].split("."), set()
        for link in page["links"]:
            matching = [
                name
                for name in ends[link.rpartition(".")[2]]
                if name.split(".")[0] == own[0] and name != page["names"][0] and _ends_with(name, link)
            ]
            if matching:
                resolved.add(max(matching, key=lambda name: (_shared_parts(name.split("."), own), -len(name))))
        page["links"] = sorted(resolved)
    return pages


def _shared_parts(first: list[str], second: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _ends_with(qualified: str, written: str) -> bool:
    parts = written.split(".")
    parts = parts[1:] if parts[0] in {"numpy", "np", "pandas", "pd", "scipy"} else parts
    rest = iter(qualified.split("."))
    return bool(parts) and qualified.rpartition(".")[2] == parts[-1] and all(part in rest for part in parts)


def chosen(pages: list[dict]) -> list[dict]:
    """Return at most ``MOST`` pages, those with links and the linked ones first."""
    names = {name for page in pages for name in page["names"]}
    linked = {name for page in pages for name in page["links"]}
    tied = [page for page in pages if set(page["links"]) & names or set(page["names"]) & linked]
    other = [page for page in pages if not (set(page["links"]) & names or set(page["names"]) & linked)]
    spread = [tied[int(at)] for at in np.linspace(0, len(tied) - 1, min(MOST, len(tied)))] if tied else []
    return spread + other[: MOST - len(spread)]


class Links:
    """The pages of one source as texts, and which are linked."""

    def __init__(self, pages: list[dict]) -> None:
        self.texts = [" ".join(f"{page['summary']} {page['text']}".split()[:WORDS]) for page in pages]
        numbers = {name: number for number, page in enumerate(pages) for name in page["names"]}
        self.linked = {
            number: np.array(sorted({numbers[name] for name in page["links"] if name in numbers} - {number}))
            for number, page in enumerate(pages)
        }
        self.queries = [number for number, targets in self.linked.items() if len(targets)]

    def score(self, similarities: np.ndarray) -> tuple[float, float]:
        """Return MRR@10 and recall@10 of similarities (queries, pages)."""
        reciprocal, recall = [], []
        for row, number in zip(similarities, self.queries, strict=True):
            row[number] = -np.inf
            best = np.argsort(-row, kind="stable")[:10]
            hits = np.flatnonzero(np.isin(best, self.linked[number]))
            reciprocal.append(1 / (1 + hits[0]) if len(hits) else 0.0)
            recall.append(len(hits) / min(10, len(self.linked[number])))
        return 100 * float(np.mean(reciprocal)), 100 * float(np.mean(recall))

    def overlap(self) -> tuple[float, float]:
        """Return the mean word overlap (Jaccard) of linked pages, and of pages at random."""
        words = [set(text.casefold().split()) for text in self.texts]
        draw = np.random.default_rng(0)
        both = [(number, int(draw.choice(self.linked[number]))) for number in self.queries]
        random = [(number, int(draw.integers(len(words)))) for number in self.queries]
        return _shared(words, both), _shared(words, random)


def _shared(words: list[set[str]], pairs: list[tuple[int, int]]) -> float:
    return float(np.mean([len(words[a] & words[b]) / len(words[a] | words[b]) for a, b in pairs]))


def tests_of(pages: list[dict]) -> document_tests.DocumentTests:
    """Make the verdict's tests of some pages."""
    documents = [
        Document("\n".join(re.split(r"(?<=[.!?])\s+", page["text"])), "", page["summary"])
        for page in pages
        if len(re.split(r"(?<=[.!?])\s+", page["text"])) >= 4
    ]
    chosen = [documents[int(at)] for at in np.linspace(0, len(documents) - 1, min(DOCUMENTS, len(documents)))]
    return document_tests.build_tests([document for document, _ in parse_rows(chosen, "en")], seed=0)


def main() -> None:
    """Score every encoder on links and by the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="keeps the pages, vectors and scores")
    parser.add_argument("encoders", nargs="*", type=Path)
    parser.add_argument("--derived", action="append", default=[], help="an encoder whose variants are scored")
    parser.add_argument(
        "--source", action="append", choices=("manual pages", "docstrings", "packages"), help="all by default"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    sources = {}
    readers = {"manual pages": manual_pages, "docstrings": docstring_pages, "packages": package_pages}
    for name in arguments.source or readers:
        read = readers[name]
        kept = arguments.out / f"{name}.jsonl"
        if not kept.is_file():
            harness.write_rows(kept, read())
        pages = chosen([json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()])
        sources[name] = Links(pages), tests_of(pages)
        overlap, chance = sources[name][0].overlap()
        print(
            f"{name}: {len(pages):,} pages, {len(sources[name][0].queries):,} with links; "
            f"words shared {overlap:.3f}, by chance {chance:.3f}"
        )
    fit = next(iter(sources.values()))[1].texts
    candidates = [folder(path) for path in arguments.encoders]
    for candidate, path in zip(candidates, arguments.encoders, strict=True):
        candidate.encode = remembered(str(path), candidate.encode, arguments.out)
    for base in arguments.derived:
        candidates += derived(base, arguments.out, fit)
    for name, (links, tests) in sources.items():
        print(f"\n{name}: verdict's score, MRR@10 and recall@10 of the linked pages")
        similar = np.array(bm25_scores([links.texts[query] for query in links.queries], links.texts))
        shown("BM25", score_bm25(tests, resamples=0, seed=0).get(SCORE, "mean").value, *links.score(similar))
        rows = [(candidate.name, *measured(candidate, links, tests)) for candidate in candidates]
        for row in sorted(rows, key=lambda row: -row[2]):
            shown(*row)
        report(rows, {c.name for c, path in zip(candidates, arguments.encoders, strict=False) if _is_static(path)})


def measured(candidate: Candidate, links: Links, tests: document_tests.DocumentTests) -> tuple[float, float, float]:
    """Return the verdict's score of an encoder, and MRR@10 and recall@10 of links."""
    scored = score_vectors(tests, candidate.encode(tests.texts), name=candidate.name, resamples=0, seed=0)
    vectors = candidate.encode(links.texts)
    vectors = unit(vectors)
    return scored.get(SCORE, "mean").value, *links.score(vectors[links.queries] @ vectors.T)


def shown(name: str, verdict: float, mrr: float, recall: float) -> None:
    """Print one encoder."""
    print(f"{verdict:6.1f} {mrr:6.1f} {recall:6.1f}  {name}", flush=True)


def _is_static(path: Path) -> bool:
    return "StaticEmbedding" in (path / "modules.json").read_text(encoding="utf-8")


def report(rows: list[tuple[str, float, float, float]], static: set[str]) -> None:
    """Print the correlation of links and verdict, and the lean towards word vectors."""
    verdict, links = (np.array([row[column] for row in rows]) for column in (1, 2))
    value, low, high = correlation(verdict, links)
    print(f"Spearman {value:.3f} [{low:.3f}, {high:.3f}] over {len(rows)} encoders")
    words = np.array([name in static for name, *_ in rows])
    if 2 < words.sum() < len(words) - 2:
        line = stats.linregress(links[~words], verdict[~words])
        lean = verdict[words] - line.intercept - line.slope * links[words]
        print(
            f"word vectors lie {lean.mean():+.1f} points of the verdict's score above the line of the others "
            f"({lean.min():+.1f} to {lean.max():+.1f})"
        )


if __name__ == "__main__":
    main()
