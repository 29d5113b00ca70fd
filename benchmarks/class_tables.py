"""Made tables of many classes: letters by their shapes, and land by its colours.

Like two tables of Statlog that are not among the data sets: as many inputs and classes, and as hard
for a support vector machine.
"""

import string
from pathlib import Path

import numpy as np

_FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic", "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic",
    "STIXGeneralBolIta", "cmb10", "cmmi10", "cmr10", "cmss10", "cmti10", "cmtt10",
)  # fmt: skip
_DRAWN, _SEEN = 128, 45  # pixels a side: of a glyph as it is drawn, and as it is seen


def letters(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Letters of twenty fonts, distorted at random, by sixteen whole numbers from 0 to 15.

    The numbers are those of Frey & Slate (1991): the box around a letter, its pixels, their moments
    in the box, and their edges. Capital and small letters are one class, as different from each
    other as the script and Gothic ones among their capitals.
    """
    rng = np.random.default_rng(seed)
    glyphs = _glyphs()
    y = rng.integers(glyphs.shape[1], size=number)
    features = [_features(_distorted(glyphs[rng.integers(len(glyphs)), c], rng)) for c in y]
    raw = np.array(features)
    low, high = np.quantile(raw, [0.005, 0.995], axis=0)
    return np.clip(np.round(15 * (raw - low) / (high - low)), 0, 15), y.astype(float)


def _glyphs() -> np.ndarray:
    """Ink of every font's letters, shape (fonts and cases, letters, pixels, pixels)."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")

    def drawn(font: ImageFont.FreeTypeFont, letter: str) -> np.ndarray:
        image = Image.new("L", (_DRAWN, _DRAWN))
        middle = _DRAWN // 2
        ImageDraw.Draw(image).text((middle, middle), letter, fill=255, font=font, anchor="mm")
        return np.asarray(image) > 127

    fonts = [ImageFont.truetype(str(folder / f"{name}.ttf"), 96) for name in _FONTS]
    cases = string.ascii_uppercase, string.ascii_lowercase
    return np.array([[drawn(font, c) for c in case] for font in fonts for case in cases])


def _distorted(glyph: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A glyph scaled, sheared and bent, a little of it lost to noise; as it is seen."""
    grid = np.linspace(-1, 1, _SEEN)
    v, u = np.meshgrid(grid, grid, indexing="ij")
    scale = rng.uniform(0.75, 1.6) * np.exp(0.12 * rng.standard_normal(2))
    bend, shear = 0.05 * rng.standard_normal(2), 0.04 * rng.standard_normal()
    x = scale[0] * (u + bend[0] * v**2 + shear * v - rng.uniform(-0.15, 0.15))
    y = scale[1] * (v + bend[1] * u**2 - rng.uniform(-0.15, 0.15))
    place = [np.round((1 + axis) * (_DRAWN - 1) / 2).astype(int) for axis in (y, x)]
    inside = np.all([(axis >= 0) & (axis < _DRAWN) for axis in place], axis=0)
    seen = inside & glyph[tuple(np.clip(axis, 0, _DRAWN - 1) for axis in place)]
    return seen & (rng.random(seen.shape) > rng.uniform(0, 0.01))


def _features(seen: np.ndarray) -> list[float]:
    rows, columns = np.nonzero(seen)
    if not len(rows):
        return [0.0] * 16
    top, left = rows.min(), columns.min()
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    x = (columns - left + 0.5) / width - 0.5
    y = 0.5 - (rows - top + 0.5) / height
    box = seen[top : top + height, left : left + width]
    upright = box & ~np.pad(box, ((0, 0), (1, 0)))[:, :-1]
    level = box & ~np.pad(box, ((1, 0), (0, 0)))[:-1]
    heights = np.nonzero(upright)[0].mean() / height
    places = np.nonzero(level)[1].mean() / width
    moments = [x.mean(), y.mean(), (x**2).mean(), (y**2).mean(), (x * y).mean()]
    moments += [(x**2 * y).mean(), (x * y**2).mean()]
    edges = [upright.sum() / height, heights, level.sum() / width, places]
    return [left + width / 2, top + height / 2, width, height, len(rows), *moments, *edges]


def land(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Six kinds of land in four bands of a satellite's, 3 x 3 pixels to tell the middle one's kind.

    Kinds lie in patches; a pixel mixes its neighbourhood, and what one sees of a kind changes
    slowly over the land and from pixel to pixel.
    """
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    side = 1024
    shares = np.array([0.24, 0.11, 0.21, 0.10, 0.11, 0.23])
    fields = [gaussian_filter(rng.standard_normal((side, side)), 6, mode="wrap") for _ in shares]
    fields = [field / field.std() for field in fields]
    kinds = np.argmax(np.array(fields) + _OFFSETS[:, None, None], axis=0)
    bands = []
    for means in _BANDS.T:
        slow = gaussian_filter(rng.standard_normal((side, side)), 3, mode="wrap")
        fast = gaussian_filter(rng.standard_normal((side, side)), 0.7, mode="wrap")
        band = means[kinds] + 5.2 * slow / slow.std() + 5.2 * fast / fast.std()
        bands.append(gaussian_filter(band, 0.6, mode="wrap"))
    image = np.round(np.stack(bands, axis=-1))
    places = rng.permutation((side - 2) ** 2)[:number]
    rows, columns = np.unravel_index(places, (side - 2, side - 2))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(0, 1))
    X = np.moveaxis(windows[rows, columns], 1, -1).reshape(number, -1)
    return X, kinds[rows + 1, columns + 1].astype(float)


# Kinds: red soil, cotton, grey soil, damp grey soil, stubble, very damp grey soil.
_BANDS = np.array([
    [63, 95, 108, 88], [49, 40, 115, 120], [87, 105, 111, 87],
    [77, 91, 96, 75], [60, 63, 82, 64], [69, 77, 81, 64],
])  # fmt: skip
_OFFSETS = np.array([0.45, -0.25, 0.3, -0.25, -0.2, 0.4])
