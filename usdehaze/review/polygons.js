// Regions drawn on the page: polygons in pixels of the native frame, as the JSON that --roi takes.

// A region is {name, role, frames, polygon}; frames count as in the source, from 0, and null stands for all of them.
const drawn = [];

const sourceFrame = () => page.first_frame + state.frame;
const holdsNow = (region) => region.frames === null || region.frames.includes(sourceFrame());

// Adds the bit to every pixel of the plane whose centre lies inside: the even-odd rule of polygon_mask.
function fillPolygon(plane, polygon, bit, { width, height }) {
  for (let y = 0; y < height; y++) {
    const cuts = [];
    polygon.forEach(([x0, y0], k) => {
      const [x1, y1] = polygon[(k + 1) % polygon.length];
      if (y >= Math.min(y0, y1) && y < Math.max(y0, y1)) cuts.push(x0 + ((y - y0) * (x1 - x0)) / (y1 - y0));
    });
    cuts.sort((a, b) => a - b);
    for (let k = 0; k + 1 < cuts.length; k += 2) {
      const end = Math.min(Math.ceil(cuts[k + 1]), width);
      for (let x = Math.max(Math.ceil(cuts[k]), 0); x < end; x++) plane[y * width + x] |= bit;
    }
  }
}

// Bits of the roles at every pixel of the frame shown: of what was drawn, else of what the page was made with.
function regionsNow(levels) {
  if (!drawn.length) return levels.regions || null;
  const plane = new Uint8Array(page.width * page.height);
  for (const { role, polygon } of drawn.filter(holdsNow)) fillPolygon(plane, polygon, ROLE_BITS[role], page);
  return plane;
}

function regionsDocument() {
  const round = (value) => Math.round(100 * value) / 100;
  return {
    regions: drawn.map(({ name, role, frames, polygon }) => (
      { name, role, ...(frames && { frames }), polygon: polygon.map((point) => point.map(round)) })),
  };
}

// The regions of a document, or an error that says what is wrong with which.
function parseRegions(text) {
  let regions;
  try {
    ({ regions } = JSON.parse(text));
  } catch {
    throw new Error('The file is not valid JSON; {"regions": [...]} is expected.');
  }
  if (!Array.isArray(regions) || !regions.length) throw new Error('The file holds no list of regions.');
  return regions.map((entry, index) => parseRegion(entry, index, JSON.parse(text).units));
}

function parseRegion(entry, index, units = 'px') {
  const { name = String(index), role, frames = null, polygon } = entry || {};
  const fail = (found) => { throw new Error(`Region ${index + 1} ${found}.`); };
  if (!Object.hasOwn(ROLE_BITS, role)) fail('has no role of tissue, haze or faint');
  if ((entry.units || units) !== 'px') fail('is not in pixels, which is all that this page can draw');
  if (frames !== null && !(Array.isArray(frames) && frames.length && frames.every(Number.isInteger))) {
    fail('has frames that are no list of indices');
  }
  const isPoint = (point) => Array.isArray(point) && point.length === 2 && point.every(Number.isFinite);
  if (!Array.isArray(polygon) || polygon.length < 3 || !polygon.every(isPoint)) fail('has no polygon of 3 points or more');
  const inside = ([x, y]) => x >= -0.5 && y >= -0.5 && x <= page.width - 0.5 && y <= page.height - 0.5;
  if (!polygon.every(inside)) fail(`leaves the frame of ${page.width} × ${page.height} pixels`);
  return { name: String(name), role, frames, polygon: polygon.map((point) => [...point]) };
}
