"""Draws the pictures of the pages on methods: what each rank holds, and what it sends.

    python docs/drawings.py        writes docs/methods/*.svg

Rows of a rank are a band of its colour; what is sent is an arrow with what it carries.
"""

from __future__ import annotations

import pathlib
from html import escape

FOLDER = pathlib.Path(__file__).resolve().parent / "methods"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b5609a")
LIGHT = ("#cfe3f1", "#f8dcc8", "#cdebe1", "#f0dcea")
INK, SOFT = "#1b2330", "#5b6675"


class Drawing:
    """An SVG picture, put together piece by piece."""

    def __init__(self, width: int, height: int, title: str):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def box(self, x, y, width, height, fill, stroke=INK, label="", dash=""):
        """A rectangle with a label in its middle."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" '
                          f'stroke="{stroke}" rx="2"{dashed}/>')
        if label:
            self.text(x + width / 2, y + height / 2 + 4, label, "middle", 11.5)

    def text(self, x, y, words, anchor="start", size=12.0, colour=INK, weight=400):
        """Words at a place."""
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" '
                          f'fill="{colour}" font-weight="{weight}">{escape(words)}</text>')

    def arrow(self, x1, y1, x2, y2, colour=INK, words="", width=1.6, dash=""):
        """From one place to another, with words above its middle."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" '
                          f'stroke-width="{width}" marker-end="url(#head)"{dashed}/>')
        if words:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 6, words, "middle", 11, SOFT)

    def svg(self) -> str:
        """The whole file."""
        body = "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" '
                f'font-family="system-ui, Noto Sans, Arial, sans-serif">\n'
                f'<title>{escape(self.title)}</title>\n<defs><marker id="head" viewBox="0 0 8 8" '
                f'refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>\n'
                f'<rect width="{self.width}" height="{self.height}" fill="#ffffff" rx="6"/>\n'
                f'{body}\n</svg>\n')


def exact() -> Drawing:
    """Halo exchange: boundary rows go to the ranks that read them."""
    d = Drawing(700, 250, "Halo exchange between two ranks")
    for rank, x in enumerate((40, 420)):
        d.text(x, 28, f"rank {rank}", weight=600)
        d.box(x, 40, 240, 80, LIGHT[rank], COLOURS[rank], "interior rows")
        d.box(x, 120, 240, 40, COLOURS[rank] + "66", COLOURS[rank], "boundary rows")
        d.box(x, 176, 240, 34, LIGHT[1 - rank], COLOURS[1 - rank], "halo rows (copies)", "4 3")
    d.arrow(282, 136, 418, 190, words="")
    d.arrow(418, 136, 282, 190, words="")
    d.text(350, 120, "rows or partial sums", "middle", 11, SOFT)
    d.text(350, 234, "backward: gradients of halo rows go the other way, to the owners", "middle",
           11.5, SOFT)
    return d


def stale() -> Drawing:
    """Epoch by epoch: what is computed, what is in flight."""
    d = Drawing(700, 230, "Stale rows are in flight for a whole epoch")
    for row, (name, wait) in enumerate((("overlap", True), ("pipegcn", False))):
        y, x = 40 + 95 * row, 90
        d.text(14, y + 20, name, weight=600)
        for epoch in range(3):
            d.box(x, y, 110, 30, LIGHT[0], COLOURS[0], f"epoch {epoch + 1}")
            if wait:
                d.box(x + 110, y, 50, 30, "#f6d3ab", "#d9822b", "wait")
                d.arrow(x + 40, y + 46, x + 158, y + 46, "#009e73")
                x += 170
            else:
                d.arrow(x + 40, y + 46, x + 158, y + 46, "#009e73")
                x += 120
    d.text(90, 104, "messages: sent in an epoch, used in the same", size=11, colour=SOFT)
    d.text(90, 199, "messages: sent in an epoch, used in the next; nobody waits", size=11,
           colour=SOFT)
    return d


def compressed() -> Drawing:
    """What a message is made of."""
    d = Drawing(700, 190, "A row in 32 bits, in 1 bit, and as a subset of columns")
    d.text(20, 46, "a row, fp32", weight=600)
    for k in range(16):
        d.box(150 + 30 * k, 28, 30, 26, LIGHT[0], COLOURS[0])
    d.text(640, 46, "512 bits", "start", 11, SOFT)
    d.text(20, 96, "1bit", weight=600)
    for k in range(16):
        d.box(150 + 6 * k, 78, 6, 26, (COLOURS[0], "#ffffff")[k * 7 % 3 > 0], COLOURS[0])
    d.box(246, 78, 30, 26, LIGHT[2], COLOURS[2], "s")
    d.box(276, 78, 30, 26, LIGHT[2], COLOURS[2], "o")
    d.text(320, 96, "16 bits, and a scale and an offset of 16 bits each", size=11, colour=SOFT)
    d.text(20, 146, "subset", weight=600)
    for k in (1, 6, 7, 12):
        d.box(150 + 30 * k, 128, 30, 26, LIGHT[0], COLOURS[0])
    d.text(20, 176, "the columns follow from the seed, the epoch and the layer: they are not sent",
           size=11, colour=SOFT)
    return d


def sampled() -> Drawing:
    """Some boundary nodes per epoch."""
    d = Drawing(700, 190, "Some boundary nodes are exchanged in each epoch")
    for epoch, chosen in enumerate(((1, 6), (0, 9), (3, 4))):
        x = 30 + 225 * epoch
        d.text(x, 26, f"epoch {epoch + 1}", weight=600)
        for k in range(10):
            sent = k in chosen
            d.box(x, 38 + 12 * k, 80, 10, COLOURS[0] if sent else LIGHT[0], COLOURS[0])
            if sent:
                d.arrow(x + 84, 43 + 12 * k, x + 170, 43 + 12 * k)
    d.text(30, 180, "bns: the others are left out of the products of this epoch", size=11.5,
           colour=SOFT)
    return d


def transposes() -> Drawing:
    """Rows become columns, and columns rows."""
    d = Drawing(700, 260, "Two transposes per hop")
    for k, (x, name) in enumerate(((30, "update: rows"), (270, "aggregate: columns"),
                                   (510, "update: rows"))):
        d.text(x, 26, name, weight=600)
        for rank in range(3):
            if k == 1:
                d.box(x + 50 * rank, 40, 50, 150, LIGHT[rank], COLOURS[rank], f"rank {rank}")
            else:
                d.box(x, 40 + 50 * rank, 150, 50, LIGHT[rank], COLOURS[rank], f"rank {rank}")
    d.arrow(186, 115, 264, 115, words="transpose")
    d.arrow(426, 115, 504, 115, words="transpose")
    d.text(30, 218, "A rank updates all columns of its nodes, and aggregates its columns of all "
                    "nodes.", size=11.5, colour=SOFT)
    d.text(30, 238, "A transpose sends (P - 1) / P of all elements, whatever the graph.",
           size=11.5, colour=SOFT)
    return d


def pipelines() -> Drawing:
    """Chunks pass through stages."""
    d = Drawing(700, 230, "Chunks of nodes pass through stages of layers")
    for stage in range(3):
        d.text(14, 60 + 44 * stage, f"stage {stage + 1}", weight=600)
        for step in range(6):
            chunk = step - stage
            x = 110 + 92 * step
            if 0 <= chunk < 4:
                d.box(x, 40 + 44 * stage, 86, 30, LIGHT[chunk], COLOURS[chunk],
                      f"chunk {chunk + 1}")
                if stage < 2:
                    d.arrow(x + 70, 70 + 44 * stage, x + 96, 84 + 44 * stage)
            else:
                d.box(x, 40 + 44 * stage, 86, 30, "#f2f2f2", "#cccccc", "bubble", "3 3")
    d.arrow(110, 190, 660, 190)
    d.text(380, 184, "time", "middle", 11, SOFT)
    d.text(14, 218, "A rank holds some layers of all its nodes. What is sent does not depend on "
                    "the depth.", size=11.5, colour=SOFT)
    return d


def hosts() -> Drawing:
    """A part per host, columns per rank."""
    d = Drawing(700, 250, "One part per host; ranks of a host divide the columns")
    for host, x in enumerate((40, 420)):
        d.box(x - 16, 38, 272, 176, "#fafafa", "#9aa5b4", "", "5 4")
        d.text(x - 16, 28, f"host {host}", weight=600)
        for rank in range(2):
            number = 2 * host + rank
            d.box(x + 120 * rank, 56, 116, 90, LIGHT[number], COLOURS[number], f"rank {number}")
            d.box(x + 120 * rank, 160, 116, 34, LIGHT[2 * (1 - host) + rank],
                  COLOURS[2 * (1 - host) + rank], "halo columns", dash="4 3")
    d.arrow(298, 100, 402, 176)
    d.arrow(402, 100, 298, 176)
    d.text(350, 90, "each column once", "middle", 11, SOFT)
    d.text(350, 236, "Transposes between rows and columns stay within a host's memory.", "middle",
           11.5, SOFT)
    return d


DRAWINGS = {make.__name__: make for make in (exact, stale, compressed, sampled, transposes,
                                             pipelines, hosts)}


def main():
    """Write all pictures."""
    for name, make in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(make().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
