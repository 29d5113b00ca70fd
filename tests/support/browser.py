"""Headless Chromium: what it says of a page, and a small picture of it."""

import io
import json
import re
import shutil
import subprocess

import numpy as np

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# Whatever a reader would miss: figures without extent, texts cut off or over each other, captions
# beyond the edge, a page wider than the screen.
_LOOK = """
<script>
window.addEventListener("load", () => {
  const wrong = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push("the page is wider than the screen");
  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
    const name = svg.getAttribute("aria-label");
    if (box.width < 200 || box.height < 80) wrong.push(`${name}: no extent`);
    if (box.right > width + 1) wrong.push(`${name}: beyond the edge`);
    for (const text of svg.querySelectorAll("text")) {
      const own = text.getBoundingClientRect();
      const out = Math.max(box.left - own.left, own.right - box.right, box.top - own.top,
                           own.bottom - box.bottom);
      if (out > 2) wrong.push(`${name}: "${text.textContent}" is cut by ${out.toFixed(1)} px`);
    }
    const texts = [...svg.querySelectorAll("text")].map(text =>
      [text.textContent, text.closest("g"), text.getBoundingClientRect()]);
    texts.forEach(([one, group, a], i) => texts.slice(i + 1).forEach(([two, other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (group !== other && across > 1 && down > 3)
        wrong.push(`${name}: "${one}" is over "${two}"`);
    }));
  }
  for (const block of document.querySelectorAll("figcaption, .caption, summary, .lead")) {
    if (!block.offsetParent) continue;
    const words = document.createRange();
    words.selectNodeContents(block);
    if (words.getBoundingClientRect().right > width + 1)
      wrong.push(`beyond the edge: ${block.textContent.slice(0, 40)}`);
  }
  for (const block of document.querySelectorAll("p, h1, h2, figcaption, .verdict, li"))
    if (block.scrollWidth > block.clientWidth + 1 && block.clientWidth)
      wrong.push(`cut off: ${block.textContent.slice(0, 40)}`);
  const said = document.createElement("script");
  said.type = "application/json"; said.id = "looked";
  said.textContent = JSON.stringify(
    {wrong, width, figures: document.querySelectorAll("figure").length});
  document.body.append(said);
});
</script>
"""


def look_at(page, width, tmp_path):
    """What is wrong with a page at so many pixels, and what the console said.

    Chromium's window is no narrower than 500 pixels, so that a narrower page is in a frame.
    """
    looked = tmp_path / f"looked-{width}.html"
    looked.write_text(page.read_text().replace("</body>", f"{_LOOK}</body>"))
    frame = tmp_path / f"frame-{width}.html"
    frame.write_text(
        f'<iframe id="f" src="{looked.name}" style="width:{width}px;height:900px;border:0">'
        '</iframe><script>window.addEventListener("load", () => {document.title = '
        'document.getElementById("f").contentDocument.getElementById("looked").textContent})'
        "</script>"
    )
    ran = _run("--dump-dom", "--allow-file-access-from-files", f"file://{frame}", width=1600)
    found = re.search(r"<title>(.*?)</title>", ran.stdout, re.S)
    assert found, ran.stdout[:500] + ran.stderr[-2000:]
    said = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    console = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    return said, console


def small_picture(page, width, tmp_path, *, dark=False):
    """Brightness of the page's first screens, shape (48, 32), from 0 to 1."""
    from matplotlib.image import imread

    shot = tmp_path / f"shot-{width}.png"
    dark_mode = ["--blink-settings=preferredColorScheme=0"] if dark else []
    _run(f"--screenshot={shot}", *dark_mode, f"file://{page}", width=width, height=1536)
    picture = imread(io.BytesIO(shot.read_bytes()))[..., :3].mean(axis=2)
    tall, wide = picture.shape
    rows, columns = np.array_split(np.arange(tall), 48), np.array_split(np.arange(wide), 32)
    return np.array([[picture[np.ix_(r, c)].mean() for c in columns] for r in rows])


def _run(*arguments, width, height=1000):
    return subprocess.run(
        [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            f"--window-size={width},{height}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
