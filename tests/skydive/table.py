"""Tables for people."""


import re


def short(text, width):
    line = " ".join(re.sub(r"\x1b\[\d*m|^\S+Z ", "", str(text)).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def show(head, rows, width=150, sums=1):
    """Prints columns, the last one cut to what is left of the width, and counts what is in column `sums`."""
    if not rows:
        return
    wide = [max(len(str(row[column])) for row in [head, *rows]) for column in range(len(head) - 1)]
    rest = max(20, width - sum(wide) - 2 * len(wide))
    for row in [head, *rows]:
        cells = [str(cell).ljust(size) for cell, size in zip(row, wide)]
        print("  ".join([*cells, short(row[-1], rest)]).rstrip())
    counts = {}
    for row in rows:
        counts[row[sums]] = counts.get(row[sums], 0) + 1
    print(", ".join(f"{count} {what}" for what, count in counts.items()), flush=True)
