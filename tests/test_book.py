"""The book is whole: each page stands in its contents once, each link leads to a file and to a
heading of it, and what mdBook makes of it has no broken link either.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from laboratory import ROOT

BOOK = ROOT / "docs"
CONTENTS = BOOK / "SUMMARY.md"
BESIDE = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "CHANGELOG.md")]
PAGES = sorted(BOOK.glob("*.md"))
MDBOOK = shutil.which("mdbook", path=f"{ROOT / 'target/tools/bin'}:{os.environ['PATH']}")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:img|a) [^>]*?(?:src|href)=\"([^\"]*)\"")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_ENTRY = re.compile(r"^ *- \[[^\]]+\]\(([^)]*)\)$", re.MULTILINE)


def links(document: Path) -> list[str]:
    """Where a document leads on this disk; addresses of the network are no part of it."""
    text = _CODE.sub("", document.read_text(encoding="utf-8"))
    return [found for each in _LINK.findall(text) if not urlsplit(found := each[0] or each[1]).scheme]


def anchors(document: Path) -> set[str]:
    """The names of a document's headings, as GitHub and mdBook make them: small letters, a dash in
    place of each space, and no other punctuation than dashes and underscores.
    """
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def fault(document: Path, link: str) -> str | None:
    """What is wrong with a link of a document."""
    path, _, anchor = unquote(link).partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.exists():
        return "no such file"
    if document.parent == BOOK and not target.is_relative_to(BOOK):
        return "outside of the book, which has nothing of it"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target)):
        return "no such heading"
    return None


@pytest.mark.parametrize("document", [*BESIDE, *PAGES], ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading_of_it(document: Path) -> None:
    assert [(link, why) for link in links(document) if (why := fault(document, link)) is not None] == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# `A`, B_c: [d](e)\n\n[1](page.md#a-b_c-d) [2](#nowhere) [3](gone.md) <img src="no.svg" alt="">\n')
    assert [(link, fault(page, link)) for link in links(page)][1:] == [
        ("page.md#a-b_c-d", None),
        ("#nowhere", "no such heading"),
        ("gone.md", "no such file"),
        ("no.svg", "no such file"),
    ]


def test_every_page_stands_in_the_contents_once() -> None:
    entries = _ENTRY.findall(CONTENTS.read_text(encoding="utf-8"))
    lines = [line for line in CONTENTS.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith("-")]
    assert len(entries) == len(lines), "an entry of another form, which mdBook would leave out or refuse"
    assert Counter(entries) == Counter(path.name for path in PAGES if path != CONTENTS)


LEADING = {"a", "img", "link", "script", "iframe"}
"""The elements that lead elsewhere."""
APART = {"404.html", "print.html"}
"""The page for addresses that are not there, whose links begin at the root of a server, and all
pages in one."""


class _Page(HTMLParser):
    """The names and the links of a page of HTML."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.names.add(value)
            elif tag in LEADING and name in {"href", "src"} and value and not urlsplit(value).scheme:
                self.links.append(unquote(value))


@pytest.mark.skipif(MDBOOK is None, reason="mdbook is not installed (make docs installs it)")
def test_the_book_is_built_without_a_broken_link(tmp_path: Path) -> None:
    built = tmp_path / "book"
    command = [str(MDBOOK), "build", str(BOOK), "--dest-dir", str(built)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^.*\b(?:WARN|ERROR)\b.*$", done.stderr, re.MULTILINE) == []
    pages = {path: _Page(path) for path in built.glob("*.html") if path.name not in APART}
    assert {path.with_suffix(".html").name for path in PAGES if path != CONTENTS} <= {path.name for path in pages}
    broken = []
    for page, read in pages.items():
        for link in read.links:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            known = pages[target].names if target in pages else set()
            if not target.exists() or (anchor and target.suffix == ".html" and anchor not in known):
                broken.append((page.name, link))
    assert broken == []
