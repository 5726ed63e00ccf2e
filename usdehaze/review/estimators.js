// The figures of usdehaze.validation.metrics, from counts of the 256 levels: regions are small, levels are few.

const LEVELS = 256;
const ROLE_BITS = { tissue: 1, haze: 2, faint: 4 };
const toDb = (level) => (level / (LEVELS - 1) - 1) * page.dynamic_range_db;

// Counts by level of the pixels of a plane whose region has the bit.
function countsIn(plane, regions, bit) {
  const counts = new Array(LEVELS).fill(0);
  for (let i = 0; i < plane.length; i++) if (regions[i] & bit) counts[plane[i]]++;
  return counts;
}

const total = (counts) => counts.reduce((sum, n) => sum + n, 0);
const finite = (value) => (Number.isFinite(value) ? value : null);

// Of pixels of one level exactly its value, so that their variance is 0.
function meanOf(counts, value) {
  const first = value(counts.findIndex(Boolean));
  return first + counts.reduce((sum, n, level) => (n ? sum + n * (value(level) - first) : sum), 0) / total(counts);
}

function varianceOf(counts, value) {
  const mean = meanOf(counts, value);
  return meanOf(counts, (level) => (value(level) - mean) ** 2);
}

const amplitudeOf = (level) => 10 ** (toDb(level) / 20);
const meanPowerDb = (counts) => 10 * Math.log10(meanOf(counts, (level) => 10 ** (toDb(level) / 10)));

function ksOf(a, b) {
  const [nA, nB] = [total(a), total(b)];
  let [sumA, sumB, gap] = [0, 0, 0];
  for (let level = 0; level < LEVELS; level++) {
    sumA += a[level];
    sumB += b[level];
    gap = Math.max(gap, Math.abs(sumA / nA - sumB / nB));
  }
  return gap;
}

// ceil(2 N^0.4) bins of equal shares of the pooled pixels, cut on mid-ranks in whole numbers.
function gcnrOf(a, b) {
  const [nA, nB] = [total(a), total(b)];
  const n = nA + nB;
  const bins = Math.ceil(Number((2 * n ** 0.4).toFixed(9)));
  const [shareA, shareB] = [new Array(bins).fill(0), new Array(bins).fill(0)];
  let below = 0;
  for (let level = 0; level < LEVELS; level++) {
    const here = a[level] + b[level];
    if (!here) continue;
    const bin = Math.floor((bins * (2 * below + here)) / (2 * n));
    shareA[bin] += a[level] / nA;
    shareB[bin] += b[level] / nB;
    below += here;
  }
  return 1 - shareA.reduce((sum, share, bin) => sum + Math.min(share, shareB[bin]), 0);
}

function cnrOf(a, b, value) {
  const difference = Math.abs(meanOf(a, value) - meanOf(b, value));
  return difference === 0 ? 0 : finite(difference / Math.sqrt(varianceOf(a, value) + varianceOf(b, value)));
}

const speckleSnrOf = (counts) => finite(meanOf(counts, amplitudeOf) / Math.sqrt(varianceOf(counts, amplitudeOf)));

// {n_pixels: {role: n}, figures: {name: {input, tissue, delta}}} of one frame, for the roles that have pixels in it.
function figuresOfRegions(levels, regions) {
  const before = {};
  const after = {};
  const n_pixels = {};
  for (const [role, bit] of Object.entries(ROLE_BITS)) {
    const counts = countsIn(levels.input, regions, bit);
    n_pixels[role] = total(counts);
    if (!n_pixels[role]) continue;
    before[role] = counts;
    after[role] = countsIn(levels.tissue, regions, bit);
  }
  const figures = {};
  const moved = (name, value) => { figures[name] = { input: null, tissue: value, delta: null }; };
  const both = (name, measure) => {
    const [input, tissue] = [measure(before), measure(after)];
    figures[name] = { input, tissue, delta: input === null || tissue === null ? null : tissue - input };
  };
  if (before.tissue && before.haze) both('gcnr', ({ tissue, haze }) => gcnrOf(tissue, haze));
  for (const role of Object.keys(before)) {
    moved(`ks_${role}`, ksOf(before[role], after[role]));
    moved(`${role}_shift_db`, meanOf(after[role], toDb) - meanOf(before[role], toDb));
  }
  for (const role of ['tissue', 'haze']) {
    if (!before[role]) continue;
    both(`mean_${role}_db`, (counts) => meanOf(counts[role], toDb));
    both(`speckle_snr_${role}`, (counts) => speckleSnrOf(counts[role]));
  }
  if (before.tissue && before.haze) {
    both('cnr', ({ tissue, haze }) => cnrOf(tissue, haze, toDb));
    both('cnr_linear', ({ tissue, haze }) => cnrOf(tissue, haze, amplitudeOf));
    both('contrast_db', ({ tissue, haze }) => meanPowerDb(tissue) - meanPowerDb(haze));
  }
  return { n_pixels, figures };
}
