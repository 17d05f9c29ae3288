#!/usr/bin/env python3
"""Makes docs/pictures/*.svg anew, each for light and for dark screens, from what the program itself
draws and prints.

  tools/make_pictures.py [--tessera build/tessera] [--study runs/study-quick] [--only results]

face      the tiles and two figures of a study's page beside what the terminal said
pipeline  the mesh of a layout, and a schedule as `tessera explain --schedule-svg` draws it
results   bars of bench/results with their spread, drawn as pages draw theirs
          (`ninja -C build draw_bars`)

A study that is already in the folder is taken as it is (`tessera study studies/quick.toml` makes
it). Needs no package.
"""
import argparse
import html
import pathlib
import re
import subprocess
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "pictures"
INK = {"light": {"page": "#ffffff", "panel": "#f6f7f9", "line": "#dfe3e8", "text": "#1c1f23",
                 "soft": "#5b636d", "bar": "#0072b2", "peer": "#b9c0c8"},
       "dark": {"page": "#14161a", "panel": "#1c1f25", "line": "#343941", "text": "#e8eaed",
                "soft": "#a5adb8", "bar": "#4aa8e0", "peer": "#5a626c"}}
SANS = "system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif"
MONO = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"


def own_figure(path, x, y, width, theme, height=None):
    """A figure of the program inside another picture, with the colours of one theme alone; cut at
    `height`."""
    svg = path.read_text()
    w, h = (float(v) for v in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    style = re.search(r"<style>(.*?)</style>", svg, re.S).group(1)
    dark = re.search(r"@media screen and \(prefers-color-scheme:dark\)\{(.*)\}\s*$", style, re.S)
    if dark:
        style = style[:dark.start()] + (dark.group(1) if theme == "dark" else "")
    scope = f"t{zlib.crc32(path.name.encode())}"
    style = re.sub(r"\.fg(?=[\s,{:-])", rf".{scope} .fg",
                   style).replace(f".{scope} .fg{{", f".{scope}{{")
    body = re.sub(r"<style>.*?</style>", f"<style>{style}</style>", svg, count=1, flags=re.S)
    body = re.sub(r"<svg [^>]*>", "", body, count=1).replace("</svg>", "")
    body = re.sub(r"<title>[^<]*</title>", "", body)
    scale = width / w
    shown = min(h, height / scale) if height else h
    return (f'<svg class="{scope}" x="{x}" y="{y}" width="{width}" height="{shown * scale:.0f}" '
            f'viewBox="0 0 {w:.0f} {shown:.0f}" '
            f'font-family="{SANS}" font-size="12">{body}</svg>'), shown * scale


def text(x, y, what, ink, size=13, mono=False, weight=400, anchor="start"):
    return (f'<text x="{x}" y="{y}" font-family="{MONO if mono else SANS}" font-size="{size}" '
            f'font-weight="{weight}" fill="{ink}" '
            f'text-anchor="{anchor}" xml:space="preserve">{html.escape(what)}</text>')


def picture(name, theme, width, height, body, title):
    ink = INK[theme]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}-{theme}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" '
        f'width="{width}" height="{height:.0f}" role="img">\n'
        f"<title>{html.escape(title)}</title>\n<rect width=\"{width}\" height=\"{height:.0f}\" "
        f"fill=\"{ink['page']}\"/>\n{body}\n</svg>\n")


def wrap(words, most):
    lines = [""]
    for word in words.replace("n = ", "n\u00a0=\u00a0").split(" "):
        if len(lines[-1]) + len(word) + 1 > most:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def tile(x, y, w, h, label, value, what, ink):
    out = [f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{ink["page"]}" '
           f'stroke="{ink["line"]}"/>',
           text(x + 12, y + 20, label.upper(), ink["soft"], 10),
           text(x + 12, y + 48, value, ink["text"], 22 if len(value) < 9 else 18, weight=700)]
    out += [text(x + 12, y + 64 + 13.5 * i, line, ink["soft"], 11) for i,
            line in enumerate(wrap(what, int((w - 20) / 6.2))[:4])]
    return "\n".join(out)


def face(options, theme):
    ink = INK[theme]
    page = (options.study / "report.html").read_text()
    tiles = re.findall(r'<li><span class="label">(.*?)</span><strong>(.*?)</strong>'
                       r'<span class="what">(.*?)</span>', page)
    title = html.unescape(re.search(r"<h1>(.*?)</h1>", page).group(1))
    body = [f'<rect x="10" y="10" width="660" height="545" rx="12" fill="{ink["panel"]}" '
            f'stroke="{ink["line"]}"/>',
            text(30, 44, title, ink["text"], 20, weight=700)]
    for i, (label, value, what) in enumerate(tiles[:4]):
        body.append(tile(30 + 158 * i, 62, 150, 112,
                         *(html.unescape(v) for v in (label, value, what)), ink))
    said = re.findall(r"<li>(.*?)</li>", page[page.index('id="part-techniques"'):])[:4]
    y = 428
    for sentence in said:
        for i, line in enumerate(wrap(html.unescape(sentence), 100)):
            body.append(text(42, y, ("" if i else "• ") + line if not i else "  " + line,
                             ink["text"], 11.5))
            y += 15
    for i, name in enumerate(["techniques-time", "techniques-time-memory"]):
        figure, _ = own_figure(options.study / "figures" / f"{name}.svg", 30 + 316 * i, 190, 306,
                               theme, 360)
        body.append(figure)
    body.append('<rect x="690" y="10" width="500" height="545" rx="12" fill="#11151b"/>')
    for i, colour in enumerate(["#ff5f57", "#febc2e", "#28c840"]):
        body.append(f'<circle cx="{712 + 18 * i}" cy="30" r="5.5" fill="{colour}"/>')
    for i, line in enumerate(options.terminal[:34]):
        ink_of = ("#7cc0f5" if line.startswith("$") else
                  "#8b949e" if line.startswith("  (") else
                  "#6fd6b2" if line.startswith(("eval", "done")) else "#d6dbe1")
        body.append(text(706, 56 + 14.8 * i, line[:68], ink_of, 11, mono=True))
    picture("face", theme, 1200, 565, "\n".join(body), "A study's page and a terminal")


def pipeline(options, theme):
    ink = INK[theme]
    with tempfile.TemporaryDirectory() as folder:
        chart = pathlib.Path(folder) / "schedule.svg"
        subprocess.run([options.tessera, "explain", "--model", "vit_b_16", "--pp", "4", "--dp", "2",
                        "--global-batch", "64", "--accumulate", "8",
                        "--no-program", "--schedule-svg", chart], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        figure, high = own_chart(chart, 330, 44, 850, theme)
    body = [text(20, 30, "--pp 4 --dp 2: eight ranks", ink["text"], 15, weight=600),
            text(330, 30, "one step of a pipeline, 8 micro-batches, 1F1B", ink["text"], 15,
                 weight=600)]
    for stage in range(4):
        body.append(text(20, 82 + 46 * stage, f"stage {stage}", ink["soft"], 12))
        for copy in range(2):
            x, y = 84 + 108 * copy, 58 + 46 * stage
            body.append(f'<rect x="{x}" y="{y}" width="96" height="36" rx="6" '
                        f'fill="{ink["panel"]}" stroke="{ink["bar"]}"/>')
            body.append(text(x + 48, y + 23, f"rank {2 * stage + copy}", ink["text"], 12,
                             anchor="middle"))
    body += [text(132, 254, "half the batch", ink["soft"], 11, anchor="middle"),
             text(240, 254, "the other half", ink["soft"], 11, anchor="middle"), figure]
    picture("pipeline", theme, 1200, max(270, high + 54), "\n".join(body),
            "A mesh of eight ranks and the schedule of a pipeline")


def own_chart(path, x, y, width, theme):
    svg = path.read_text()
    w, h = (float(v) for v in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    body = re.sub(r"<\?xml[^>]*>", "", svg)
    dark = r"@media[^{]*prefers-color-scheme:\s*dark[^{]*\{"
    if theme == "light":
        body = re.sub(dark + r"(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", body)
    else:
        body = re.sub(dark + r"((?:[^{}]*\{[^{}]*\})*[^{}]*)\}", r"\1", body)
    attributes = (f'x="{x}" y="{y}" width="{width}" height="{h * width / w:.0f}" '
                  f'viewBox="0 0 {w:.0f} {h:.0f}"')
    body = re.sub(r"<svg [^>]*>",
                  lambda m: f"<svg {attributes}"
                  + (' class="' + c.group(1) + '"'
                     if (c := re.search(r'class="([^"]*)"', m.group(0))) else "") + ">", body,
                  count=1)
    return body, h * width / w


NEOVERSE, X86 = "peer_torch_neoverse-v1_2026-11-15.md", "peer_torch_x86-64_2026-11-15.md"
H200 = "cuda_h200_2026-11-17.md"
SIDES = ["Tessera", "PyTorch"]
# a median, and in brackets the least and the most where they were recorded
MS = r"([\d.]+)(?: \(([\d.]+)[-,] ?([\d.]+)[^)]*\))?"


def measured(file, before, value=None, behind=""):
    """(value, low, high) of a row of bench/results: `before` leads to its milliseconds, `behind`
    from there to its value, unless that is given."""
    found = re.search(before + MS + behind, (ROOT / "bench" / "results" / file).read_text(), re.M)
    ms, least, most = (float(v) if v else None for v in found.groups()[:3])
    value = value or float(found.group(4).replace(",", ""))
    return (value, value * ms / most, value * ms / least) if least else (value, None, None)


def cpu_rows(file):
    # GFLOP/s stand before the ratio
    last = r" \|.*?([\d,.]+) (?:\([^)]*\) )?\| [\d.]+ ?(?:\([^)]*\) )?\|$"
    return [(name,
             *(measured(file, rf"^\| {case} \| {side} \| ", behind=last)
               for side in ("tessera", "torch")))
            for name, case in [("ViT-B/16 inference, batch 8", "infer vit_b_16 b8"),
                               ("vit_tiny_cifar training, batch 64", "train vit_tiny_cifar b64")]]


def h200_rows():
    """The README's images a second in training, ours and torch.compile's, with the spread of the
    row that each is from."""
    turns = r"^\| {} \| train \| "
    # of vit_b_16 the session in which torch.compile had the card to itself
    ours = {"vit_b_16": r"commit 9a08df7[^~]*?" + turns.format("vit_b_16"),
            "swin_t": turns.format("swin_t"), "resnet50": turns.format("resnet50")}
    rows = []
    for line in (ROOT / "README.md").read_text().splitlines():
        found = re.match(r"\| (vit_b_16|swin_t|resnet50) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|",
                         line)
        if found:
            model, here, there = found.group(1), *(float(found.group(i).replace(",", ""))
                                                   for i in (2, 4))
            rows.append((f"{model} training, batch 256", measured(H200, ours[model], here),
                         measured(H200, ours[model] + r"(?:[^|]*\|){3} ", there)))
    return rows


def bars(options, title, unit, rows):
    """A figure of the program: two bars for each of (name, ours, theirs), each a (value, low,
    high)."""
    lines = [f"{name}\t{side}\t{part}\t" + "\t".join("-" if v is None else repr(v) for v in numbers)
             for name, *sides in rows for part, (side, numbers) in enumerate(zip(SIDES, sides))]
    drawn = subprocess.run([options.draw_bars, title, unit, *SIDES], input="\n".join(lines) + "\n",
                           check=True, capture_output=True, text=True)
    return drawn.stdout


def results(options, theme):
    """Numbers that are read from the README's table and from bench/results; error bars from the
    least to the most."""
    groups = [("2 Neoverse V1 cores, f32, 2026-11-15 (PyTorch 2.15)", "GFLOP/s",
               cpu_rows(NEOVERSE)),
              ("16 x86-64 cores (AVX-512), f32, 2026-11-15 (PyTorch 2.11)", "GFLOP/s",
               cpu_rows(X86)),
              ("one H200, bf16, 2026-11-17 and 18 (PyTorch 2.11, compiled)", "images/s",
               h200_rows())]
    body, most = [], 0
    for i, (title, unit, rows) in enumerate(groups):
        with tempfile.TemporaryDirectory() as folder:
            svg = pathlib.Path(folder) / f"results-{i}.svg"
            svg.write_text(bars(options, title, unit, rows))
            figure, high = own_figure(svg, 10 + 400 * i, 6, 386, theme)
        body.append(figure)
        most = max(most, high)
    picture("results", theme, 1200, most + 16, "\n".join(body), "Tessera beside PyTorch")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", type=pathlib.Path, default=ROOT / "build" / "tessera")
    parser.add_argument("--draw-bars", type=pathlib.Path, default=ROOT / "build" / "draw_bars")
    parser.add_argument("--only", nargs="*", default=["face", "pipeline", "results"],
                        help="some of the pictures")
    parser.add_argument("--study", type=pathlib.Path, default=ROOT / "runs" / "study-quick")
    parser.add_argument("--terminal", type=pathlib.Path, default=ROOT / "docs" / "pictures"
                        / "terminal.txt", help="what a terminal showed, with its commands")
    options = parser.parse_args()
    options.terminal = options.terminal.read_text().splitlines()
    for theme in INK:
        for make in (face, pipeline, results):
            if make.__name__ in options.only:
                make(options, theme)


if __name__ == "__main__":
    main()
