"""Every color of pages and figures, in light and in dark: a canvas reads them from the CSS.

Shades have one hue, and lightness linear in the weight (OKLCH), so that equal steps of weight look
equally far apart. Their ends are chosen so that black and white text change places at the same
weight, `STRONG`, in light and in dark.
"""

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

STRONG = 0.575
"""The depth of a shade from which text on it is of the other color."""


class Color(NamedTuple):
    """A color of the light page, and of the dark one."""

    light: str
    dark: str


_ACCENT = Color("#12609c", "#74b6ee")

COLORS = {
    "paper": Color("#fbfaf7", "#14171b"),
    "surface": Color("#ffffff", "#1b1f24"),
    "sunken": Color("#f2f0eb", "#101316"),
    "ink": Color("#1c2126", "#e7e9ec"),
    "muted": Color("#59616a", "#a3abb4"),
    "shadow": Color("#c2bdb2", "#59626c"),
    "rule": Color("#dfdcd5", "#30363d"),
    "accent": _ACCENT,
    "on-accent": Color("#ffffff", "#0c1a26"),
    "wash": Color("#e6eff7", "#1d2d3b"),
    "failed": Color("#a8231c", "#ff958a"),
    "failed-wash": Color("#fbeae8", "#37201f"),
    "passed": Color("#1d6a3c", "#84d6a0"),
    "on-shade": Color("#000000", "#ffffff"),
    "on-strong": Color("#ffffff", "#000000"),
    "figure": Color("#ffffff", "#ffffff"),  # the paper of figures
    "inverted-rule": Color("#dfdcd5", "#d0d0d0"),  # around a figure that a filter makes dark
    "hue-0": _ACCENT,
    "hue-1": Color("#a34a00", "#f0a35e"),
    "hue-2": Color("#6b3fa0", "#c3a2f0"),
    "hue-3": Color("#2c6e49", "#7fcf9f"),
    "hue-4": Color("#9b2c63", "#ee93be"),
    "hue-5": Color("#555d66", "#b4bcc5"),
}
HUES = tuple(color.light for name, color in COLORS.items() if name.startswith("hue-"))


class Ramp(NamedTuple):
    """Shades by weight w: lightness a + b w, and chroma a w (1 - w) + b w; 0 is gray."""

    lightness: tuple[float, float]
    chroma: tuple[float, float]
    hue: float

    def css(self) -> str:
        """Write the shade of the weight `--w`."""
        (low, rise), (middle, end) = self.lightness, self.chroma
        lightness = f"calc({low} + {rise} * var(--w))"
        chroma = f"calc({middle} * var(--w) * (1 - var(--w)) + {end} * var(--w))"
        return f"oklch({lightness} {chroma} {self.hue})"

    def rgb(self, weight: float) -> list[float]:
        """Return the shade of a weight as red, green and blue, 0 to 1."""
        lightness = self.lightness[0] + self.lightness[1] * weight
        middle, end = self.chroma
        chroma = middle * weight * (1 - weight) + end * weight
        angle = math.radians(self.hue)
        lab = [lightness, chroma * math.cos(angle), chroma * math.sin(angle)]
        lms = [_dot(row, lab) ** 3 for row in _LAB_TO_LMS]
        return [_encoded(_dot(row, lms)) for row in _LMS_TO_RGB]


def _dot(row: Sequence[float], values: Sequence[float]) -> float:
    total: float = sum(map(operator.mul, row, values))
    return total


def _encoded(light: float) -> float:
    """Return a channel of sRGB for an amount of light."""
    if light <= 0.0031308:
        return max(0.0, 12.92 * light)
    return min(1.0, 1.055 * math.pow(light, 1 / 2.4) - 0.055)


# Björn Ottosson, "A perceptual color space for image processing", 2020
_LAB_TO_LMS = (
    (1.0, 0.3963377774, 0.2158037573),
    (1.0, -0.1055613458, -0.0638541728),
    (1.0, -0.0894841775, -1.2914855480),
)
_LMS_TO_RGB = (
    (4.0767416621, -3.3077115913, 0.2309699292),
    (-1.2684380046, 2.6097574011, -0.3413193965),
    (-0.0041960863, -0.7034186147, 1.7076147010),
)

# The warm ramp, for numbers below zero, is as light as the cool one at each step; both begin at one
# gray, so that zero has no color.
COOL = Ramp((0.965, -0.695), (0.28, 0.097), 247)
WARM = Ramp((0.965, -0.695), (0.32, 0.087), 52)
_DARK_COOL = Ramp((0.22, 0.6), (0.22, 0.09), 244)
_DARK_WARM = Ramp((0.22, 0.6), (0.22, 0.09), 62)


def color_css() -> str:
    """Return the colors as custom properties that follow `color-scheme`, and the shades."""
    lines = [":root {", "  color-scheme: light dark;"]
    for name, (light, dark) in COLORS.items():
        lines.append(f"  --{name}: light-dark({light}, {dark});")
    lines.append("}")
    for theme in ("light", "dark"):
        lines.append(f':root[data-theme="{theme}"] {{ color-scheme: {theme}; }}')
    for number in range(len(HUES)):
        lines.append(f".hue-{number} {{ color: var(--hue-{number}); }}")
    lines += [
        f".shade {{ --shade: light-dark({COOL.css()}, {_DARK_COOL.css()}); }}",
        f".shade.minus {{ --shade: light-dark({WARM.css()}, {_DARK_WARM.css()}); }}",
        ".shade { background: var(--shade); color: var(--on-shade); }",
        ".shade.strong { color: var(--on-strong); }",
    ]
    return "\n".join([*lines, ""])
