// From levels to pixels: palettes, the fan of polar frames, outlines of regions.

const BLACK = 0xff000000;
// Black, violet, red, orange, pale yellow: brighter is more, also for the colour-blind and in print.
const MAP_STOPS = [[0, 0, 0], [66, 22, 96], [172, 46, 74], [238, 138, 42], [255, 246, 190]];

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const pixel = (red, green, blue) => BLACK | (blue << 16) | (green << 8) | red;

// Grey of every level: white at -gain dB, black rangeDb below.
function greyPalette(rangeDb, gainDb) {
  return Uint32Array.from({ length: 256 }, (_, level) => {
    const db = (level / 255 - 1) * page.dynamic_range_db;
    const grey = Math.round(255 * clamp(1 + (db + gainDb) / rangeDb, 0, 1));
    return pixel(grey, grey, grey);
  });
}

function mapColour(share) {
  const at = clamp(share, 0, 1) * (MAP_STOPS.length - 1);
  const low = Math.min(Math.floor(at), MAP_STOPS.length - 2);
  return MAP_STOPS[low].map((value, k) => Math.round(value + (at - low) * (MAP_STOPS[low + 1][k] - value)));
}

// Colour of every level of a plane that holds differences in dB: black at 0, the last colour from topDb on.
function mapPalette(topDb) {
  const dbPerLevel = page.dynamic_range_db / 255;
  return Uint32Array.from({ length: 256 }, (_, level) => pixel(...mapColour((level * dbPerLevel) / topDb)));
}

// Where a value lies on an increasing axis, as a fractional index; NaN beyond its ends.
function placeOn(axis, value) {
  let low = 0;
  let high = axis.length - 1;
  if (!(value >= axis[low] && value <= axis[high])) return NaN;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (axis[middle] <= value) low = middle;
    else high = middle;
  }
  return low + (value - axis[low]) / (axis[high] - axis[low]);
}

// Value at a fractional index of an axis, continued straight on beyond its ends.
function valueAt(axis, index) {
  const low = clamp(Math.floor(index), 0, axis.length - 2);
  return axis[low] + (index - low) * (axis[low + 1] - axis[low]);
}

function fanBox({ depths_m: depths, angles_rad: angles }) {
  const [first, last] = [angles[0], angles.at(-1)];
  const outermost = [first, -Math.PI / 2, 0, Math.PI / 2, last].map((angle) => clamp(angle, first, last));
  const ends = [depths[0], depths.at(-1)];
  const [xs, zs] = [Math.sin, Math.cos].map((of) => ends.flatMap((r) => outermost.map((angle) => r * of(angle))));
  const [left, top] = [Math.min(...xs), Math.min(...zs)];
  return { left, top, width: Math.max(...xs) - left, height: Math.max(...zs) - top };
}

// How frames are drawn: size of the picture in pixels (a fan has as many rows as asked for), and the way between native
// pixels and places in the picture. Places are shares of its width and height, (0, 0) top left; native pixel centres
// lie at whole numbers.
function makeView(fanRows) {
  const { geometry, width, height } = page;
  if (geometry.kind !== 'polar') {
    return {
      width, height,
      aspect: width / (height * geometry.row_per_column),
      toNative: (u, v) => [u * width - 0.5, v * height - 0.5],
      toPicture: (column, row) => [(column + 0.5) / width, (row + 0.5) / height],
      resample: null,
    };
  }
  const box = fanBox(geometry);
  const view = { height: fanRows, width: Math.round((fanRows * box.width) / box.height) };
  view.aspect = view.width / view.height;
  view.toNative = (u, v) => {
    const x = box.left + u * box.width;
    const z = box.top + v * box.height;
    return [placeOn(geometry.angles_rad, Math.atan2(x, z)), placeOn(geometry.depths_m, Math.hypot(x, z))];
  };
  view.toPicture = (column, row) => {
    const r = valueAt(geometry.depths_m, row);
    const angle = valueAt(geometry.angles_rad, column);
    return [(r * Math.sin(angle) - box.left) / box.width, (r * Math.cos(angle) - box.top) / box.height];
  };
  view.resample = bilinearTable(view);
  return view;
}

// For every pixel of the picture inside the fan: its place, the native pixel up and left of it, and the shares
// (in 1/256) by which it lies right of and below that one.
function bilinearTable(view) {
  const target = [];
  const corner = [];
  const shareX = [];
  const shareY = [];
  for (let y = 0; y < view.height; y++) {
    for (let x = 0; x < view.width; x++) {
      const [column, row] = view.toNative((x + 0.5) / view.width, (y + 0.5) / view.height);
      if (Number.isNaN(column) || Number.isNaN(row)) continue;
      const left = Math.min(Math.floor(column), page.width - 2);
      const top = Math.min(Math.floor(row), page.height - 2);
      target.push(y * view.width + x);
      corner.push(top * page.width + left);
      shareX.push(Math.round(256 * (column - left)));
      shareY.push(Math.round(256 * (row - top)));
    }
  }
  return {
    target: Int32Array.from(target), corner: Int32Array.from(corner),
    shareX: Int32Array.from(shareX), shareY: Int32Array.from(shareY),
  };
}

function paint(pixels, levels, palette, resample) {
  if (!resample) {
    for (let i = 0; i < levels.length; i++) pixels[i] = palette[levels[i]];
    return;
  }
  const { target, corner, shareX, shareY } = resample;
  const width = page.width;
  for (let k = 0; k < target.length; k++) {
    const i = corner[k];
    const sx = shareX[k];
    const upper = levels[i] * (256 - sx) + levels[i + 1] * sx;
    const lower = levels[i + width] * (256 - sx) + levels[i + width + 1] * sx;
    pixels[target[k]] = palette[(upper * (256 - shareY[k]) + lower * shareY[k] + 32768) >> 16];
  }
}

// Sides of pixels between inside and outside of a region, as [u0, v0, u1, v1, ...] in shares of the picture.
function outline(regions, bit, view) {
  const { width, height } = page;
  const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && (regions[y * width + x] & bit) !== 0;
  const sides = [];
  const side = (x0, y0, x1, y1) => sides.push(...view.toPicture(x0, y0), ...view.toPicture(x1, y1));
  for (let y = 0; y <= height; y++) {
    for (let x = 0; x <= width; x++) {
      const here = inside(x, y);
      if (here !== inside(x - 1, y)) side(x - 0.5, y - 0.5, x - 0.5, y + 0.5);
      if (here !== inside(x, y - 1)) side(x - 0.5, y - 0.5, x + 0.5, y - 0.5);
    }
  }
  return sides;
}
