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
    '.token, .role, .key';
  return [...document.querySelectorAll(chosen)]
    .filter(node => node.textContent.trim())
    .filter(node => node.checkVisibility() && !node.closest('noscript'))
    .map(node => {
      const back = ground(node);
      const [a, b] = [light(pixel(getComputedStyle(node).color, back)), light(pixel(back, back))];
      const name = node.className + ' ' + node.textContent.slice(0, 30);
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), name];
    });
}"""


def shown_weights(page):
    """The weights under the token strip, as titles."""
    return (
        page.locator(".strip .bars")
        .first.locator(".column")
        .evaluate_all("all => all.map(c => c.title)")
    )


def said(page):
    return page.locator(".said").inner_text()


def read_cell(page, number, row, column):
    """Point at a cell of a map, and return what is read there."""
    canvas = page.locator("canvas.heatmap").nth(number)
    canvas.scroll_into_view_if_needed()
    box, told = canvas.bounding_box(), canvas.evaluate("node => ({...node.dataset})")
    page.mouse.move(
        box["x"] + float(told["left"]) + (column + 0.5) * float(told["cellWidth"]),
        box["y"] + float(told["top"]) + (row + 0.5) * float(told["cellHeight"]),
    )
    return str(page.locator(".map-reading").nth(number).inner_text())


def wait_for_paint(page):
    """Return once the page has painted what it was told; maps paint in the next frame."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


def picture(page, number=0):
    """The pixels of a map, to compare with those of another moment."""
    wait_for_paint(page)
    return str(page.locator("canvas.heatmap").nth(number).evaluate("node => node.toDataURL()"))


PAINTED = """number => new Promise(resolve => {
  const canvas = document.querySelectorAll('canvas.heatmap')[number];
  const own = CanvasRenderingContext2D.prototype.fillText;
  const light = rgb => rgb.map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const below = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const found = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (this.canvas !== canvas) return own.call(this, text, x, y);
    const at = this.getTransform().transformPoint({x, y});
    const {a: across, b: down} = this.getTransform();
    below.drawImage(canvas, at.x, at.y, 1, 1, 0, 0, 1, 1);
    const ground = [...below.getImageData(0, 0, 1, 1).data].slice(0, 3);
    const colour = this.fillStyle.match(/\\w\\w/g).map(hex => parseInt(hex, 16));
    const [a, b] = [light(ground), light(colour)];
    found.push({text: text.replace(/[\u2068\u2069]/g, ''), ground: ground.join(),
      x: at.x / devicePixelRatio, y: at.y / devicePixelRatio, align: this.textAlign,
      isUpright: Math.abs(down) > Math.abs(across),
      isNumber: this.textAlign === 'center' && this.textBaseline === 'middle',
      wide: this.measureText(text).width,
      ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)});
    return own.call(this, text, x, y);
  };
  canvas.dispatchEvent(new PointerEvent('pointerleave'));
  requestAnimationFrame(() => requestAnimationFrame(() => {
    CanvasRenderingContext2D.prototype.fillText = own;
    resolve(found);
  }));
})"""

CELL = """(canvas, [row, column]) => {
  const copy = document.createElement('canvas');
  Object.assign(copy, {width: canvas.width, height: canvas.height});
  const pen = copy.getContext('2d', {willReadFrequently: true});
  pen.drawImage(canvas, 0, 0);
  const [left, top, wide, high] = ['left', 'top', 'cellWidth', 'cellHeight']
    .map(name => Number(canvas.dataset[name]) * devicePixelRatio);
  const found = pen.getImageData(left + (column + 0.15) * wide, top + (row + 0.1) * high,
    wide * 0.7, high * 0.15).data;
  return [...new Set(new Uint32Array(found.buffer))];
}"""


def painted(page, number=0):
    """All words that a map is painted with, where, and how they stand out from the pixel below."""
    return list(page.evaluate(PAINTED, number))


def numbers(page, number=0):
    """The numbers in the cells of a map, row by row."""
    return [each for each in painted(page, number) if each["isNumber"]]


def written(page, number=0):
    """The names beside and above a map, and the titles of its axes."""
    return [each["text"] for each in painted(page, number) if not each["isNumber"]]


def cell_colors(page, number, row, column):
    """The colors at the upper edge of a cell, where no number stands."""
    wait_for_paint(page)
    canvas = page.locator("canvas.heatmap").nth(number)
    return list(canvas.evaluate(CELL, [row, column]))


def hatched(page, number, row, column):
    """Whether a cell shows lines; a weight, also zero, is one flat color."""
    return len(cell_colors(page, number, row, column)) > 1
