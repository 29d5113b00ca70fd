"""Makes the pictures of the guide to reports: `python docs/report_pictures.py`, with Chromium."""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from matplotlib.image import imread, imsave

from browser import CHROMIUM
from latentgp.surfaces.report import write_report
from report_fits import fitted

FOLDER = Path(__file__).parent / "images"
KINDS = {"classifier": (1024, 2100), "counts": (1024, 2100), "series": (390, 1500)}

for kind, (width, height) in KINDS.items():
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(*fitted(kind), Path(folder) / "page.html")
        shot = Path(folder) / "shot.png"
        look = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        dark = ["--blink-settings=preferredColorScheme=0"] if kind == "counts" else []
        look += [*dark, f"--window-size={max(width, 500)},{height}", f"--screenshot={shot}"]
        subprocess.run([str(CHROMIUM), *look, f"file://{page}"], check=True, capture_output=True)
        picture = imread(shot)[:, :, :3]
        imsave(FOLDER / f"report-{kind}.png", picture.copy(order="C"))
