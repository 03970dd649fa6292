"""What a page shows, read off with a browser: shorthands that several tests share."""

from collections.abc import Callable
from typing import Any

Open = Callable[..., Any]

CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const pixel = (colour, under) => {
    canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = rgb => rgb.map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (pixel(colour, '#000').join() === pixel(colour, '#fff').join()) return colour;
    }
  };
  const chosen = 'h1, h2, h3, h4, p, dt, dd, td, th, code, button:enabled, li span, output, ' +
    '.token, .weight, .query-name, .role, .key';
  return [...document.querySelectorAll(chosen)]
    .filter(node => node.textContent.trim() || node.dataset.brief)
    .filter(node => node.checkVisibility() && !node.closest('noscript'))
    .map(node => {
      const back = ground(node);
      const [a, b] = [light(pixel(getComputedStyle(node).color, back)), light(pixel(back, back))];
      const name = node.className + ' ' + node.textContent.slice(0, 30);
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), name];
    });
}"""


def shown_weights(page: Any) -> list[str]:
    """The weights under the token strip, as titles: what the first head pictures at the current
    step."""
    return (
        page.locator(".strip .bars")
        .first.locator(".column")
        .evaluate_all("all => all.map(c => c.title)")
    )


def said(page: Any) -> str:
    return page.locator(".said").inner_text()


def first_heatmap(page: Any) -> list[str]:
    return (
        page.locator(".map").first.locator(".weight").evaluate_all("all => all.map(c => c.title)")
    )
