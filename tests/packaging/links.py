#!/usr/bin/env python3
"""links.py: every relative link of the documentation leads to a file, and every anchor to a heading of it."""

import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page):
    """A page without blocks and spans of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda span: span[0][1:-1].replace("](", ""), text)


@functools.cache
def anchors(page):
    """Anchors as GitHub makes them of headings."""
    found = {}
    for line in text_of(page).splitlines():
        heading = re.match(r"#+ +(.*)", line)
        if not heading:
            continue
        title = LINK.sub("", heading[1].replace("[", "").replace("*", ""))
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        if count:
            found[f"{slug}-{count}"] = 1
    return found


def main():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    pages = [ROOT / name for name in listed.stdout.splitlines()]
    wrong, links = [], 0
    for page in pages:
        for target in LINK.findall(text_of(page)):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if not there.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target}: no such file")
            elif anchor and there.suffix == ".md" and anchor not in anchors(there):
                wrong.append(f"{page.relative_to(ROOT)}: {target}: no such heading")
    assert links > 100, f"only {links} links were read"
    if wrong:
        sys.exit("links: " + "\n       ".join(wrong))


main()
