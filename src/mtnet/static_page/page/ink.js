// A drawing as the networks know characters: 28 by 28 pixels, ink 1, background 0. The same as
// mtnet/userdata/drawings.py, step by step.

const SIZE = 28;
const FILLED = 0.25; // a pixel is ink if its coverage exceeds this share of the largest
const MIXED = 0.25; // if both tones have more than this share of the border, it is no background

const KEPT = 300;
const kept = new Map(); // drawings by data URL: examples are learned again and again

// From a data URL to a list of 28 * 28 numbers.
export async function inkOf(url, name) {
  if (!kept.has(url)) {
    const ink = await decoded(url, name);
    if (kept.size >= KEPT) kept.clear();
    kept.set(url, ink);
  }
  return kept.get(url);
}

async function decoded(url, name) {
  const image = new Image();
  image.src = url;
  await image.decode();
  const [width, height] = [image.width, image.height];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(image, 0, 0);
  return fromPixels(context.getImageData(0, 0, width, height), name);
}

// The same from red, green, blue and alpha of each pixel, on white.
function fromPixels({ data, width, height }, name) {
  const grey = new Uint8Array(width * height);
  for (let i = 0; i < grey.length; i++) {
    grey[i] = (19595 * data[4 * i] + 38470 * data[4 * i + 1] + 7471 * data[4 * i + 2] + 32768) >> 16;
  }
  const tones = grey.reduce(([low, high], tone) => [Math.min(low, tone), Math.max(high, tone)], [255, 0]);
  if ((tones[1] - tones[0]) / 255 < 0.1) throw new Error(`${name} is empty: all pixels have one colour`);
  return coarse(square(twoTones(grey, width, height)));
}

// Ink is the rarer tone along the border, or in the whole image if the border has much of both.
function twoTones(grey, width, height) {
  const most = threshold(grey);
  const dark = (row, column) => Number(grey[row * width + column] <= most);
  let [border, all] = [0, 0];
  for (let row = 0; row < height; row++) {
    border += dark(row, 0) + dark(row, width - 1);
    for (let column = 0; column < width; column++) all += dark(row, column);
  }
  for (let column = 0; column < width; column++) border += dark(0, column) + dark(height - 1, column);
  border /= 2 * (width + height);
  const share = Math.min(border, 1 - border) < MIXED ? border : all / grey.length;
  const ink = share <= 0.5 ? dark : (row, column) => 1 - dark(row, column);
  return { ink, width, height };
}

// Otsu's threshold.
function threshold(grey) {
  const counts = new Array(256).fill(0);
  for (const tone of grey) counts[tone]++;
  const total = counts.reduce((sum, count, tone) => sum + count * tone, 0);
  let [best, found, below, sum] = [0, -1, 0, 0];
  for (let tone = 0; tone < 256; tone++) {
    below += counts[tone];
    sum += counts[tone] * tone;
    if (!counts[tone] || below === grey.length) continue;
    const share = below / grey.length;
    const apart = sum / below - (total - sum) / (grey.length - below);
    const between = share * (1 - share) * apart ** 2;
    if (between > found) [best, found] = [tone, between];
  }
  return best;
}

// The ink with a margin, centred on a square background.
function square({ ink, width, height }) {
  let [top, bottom, left, right] = [height, 0, width, 0];
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      if (!ink(row, column)) continue;
      [top, bottom] = [Math.min(top, row), Math.max(bottom, row)];
      [left, right] = [Math.min(left, column), Math.max(right, column)];
    }
  }
  const [tall, wide] = [bottom - top + 1, right - left + 1];
  const side = Math.round(Math.max(tall, wide) * 1.4);
  const [above, before] = [Math.floor((side - tall) / 2), Math.floor((side - wide) / 2)];
  const rows = Array.from({ length: side }, () => new Float32Array(side));
  for (let row = 0; row < tall; row++) {
    for (let column = 0; column < wide; column++) rows[above + row][before + column] = ink(top + row, left + column);
  }
  return rows;
}

// Which pixels of a side make a pixel of the small image: [first, last + 1], as Pillow's BOX has it.
function boxes(side) {
  const scale = side / SIZE;
  const reach = 0.5 * Math.max(scale, 1);
  return Array.from({ length: SIZE }, (_, i) => {
    const centre = (i + 0.5) * scale;
    const inside = (n) => {
      const away = (n - centre + 0.5) / Math.max(scale, 1);
      return away > -0.5 && away <= 0.5;
    };
    let [first, last] = [Math.max(0, Math.trunc(centre - reach + 0.5)), Math.min(side, Math.trunc(centre + reach + 0.5))];
    while (first < last && !inside(first)) first++;
    while (last > first && !inside(last - 1)) last--;
    return [first, last];
  });
}

function coarse(rows) {
  const places = boxes(rows.length);
  const mean = (values, [first, last]) => {
    let sum = 0;
    for (let n = first; n < last; n++) sum += values[n] * (1 / (last - first));
    return Math.fround(sum);
  };
  const narrow = rows.map((row) => places.map((place) => mean(row, place)));
  const columns = places.map((_, j) => narrow.map((row) => row[j]));
  const coverage = places.flatMap((place) => columns.map((column) => mean(column, place)));
  const least = Math.fround(FILLED * Math.max(...coverage));
  return coverage.map((share) => Number(share > least));
}

// Such a drawing as a PNG file in base64.
export function shown(ink) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE;
  const pixels = new ImageData(SIZE, SIZE);
  ink.forEach((tone, i) => pixels.data.set([255 * tone, 255 * tone, 255 * tone, 255], 4 * i));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas.toDataURL("image/png").split(",")[1];
}
