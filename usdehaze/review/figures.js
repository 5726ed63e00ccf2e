// Everything on the page that is not a picture: figures, histograms, provenance.

// Name of a figure, digits after the point, and what it says. gCNR never stands alone: its company comes with it.
const COMPANY = ['gcnr', 'ks_tissue', 'tissue_shift_db'];
const FIGURES = {
  gcnr: ['gCNR', 3, 'tissue against haze region; 1 = no overlap'],
  ks_tissue: ['KS, tissue region', 3, 'input to output; 0 = untouched'],
  tissue_shift_db: ['Mean shift, tissue region', 2, 'dB; 0 = untouched'],
  ks_haze: ['KS, haze region', 3, 'input to output'],
  haze_shift_db: ['Mean shift, haze region', 2, 'dB'],
  contrast_db: ['Contrast', 2, 'tissue over haze region, dB'],
  cnr: ['CNR', 3, 'of the dB image'],
  psnr_db: ['PSNR', 2, 'against the truth, dB'],
  ssim: ['SSIM', 3, 'against the truth'],
};
const SIGNED = /_shift_db$/;
const BINS = 64; // of four levels each
const SVG = 'http://www.w3.org/2000/svg';

const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function makeSvg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// A number as it is printed: a true minus, no minus before zero, a dash where there is no value.
function number(value, digits, signed = false) {
  if (value === null || value === undefined) return '–';
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? '−' : signed ? '+' : '') + text;
}

function cell(value, digits, signed) {
  const element = make('td', { textContent: number(value, digits, signed) });
  if (value === null || value === undefined) element.title = 'not defined for this figure';
  else element.dataset.value = value;
  return element;
}

function figureRow(name, entry, estimator) {
  const [label, digits, hint] = FIGURES[name] || [name, 3, ''];
  const row = make('tr', {}, make('th', { scope: 'row', title: estimator || '' }, label, make('small', { textContent: hint })));
  row.dataset.figure = name;
  row.append(cell(entry.input, digits, false), cell(entry.tissue, digits, SIGNED.test(name)), cell(entry.delta, digits, true));
  const signed = entry.delta !== null || SIGNED.test(name);
  const interval = entry.ci95
    ? entry.ci95.map((end) => number(end, digits, signed)).join(' to ')
    : 'not known';
  const last = make('td', { textContent: interval });
  if (entry.ci95) last.dataset.value = entry.ci95.join(' ');
  row.append(last);
  return row;
}

function showMetrics() {
  const notes = byId('metrics-notes');
  if (!metrics) {
    notes.append(make('p', { textContent:
      'No regions of interest were given, so there are no figures of tissue and haze regions. Build the page with --roi FILE to have them.' }));
    return;
  }
  const { summary, settings } = metrics;
  const estimators = settings.estimators || {};
  const together = COMPANY.filter((name) => name in summary);
  const company = make('tbody', { className: 'company' });
  company.append(make('tr', { className: 'lead' }, make('th', { colSpan: 5, scope: 'rowgroup' }, make('small', { textContent: 'Read together' }))));
  together.forEach((name) => company.append(figureRow(name, summary[name], estimators[name])));
  const others = make('tbody');
  Object.keys(summary).filter((name) => !together.includes(name))
    .forEach((name) => others.append(figureRow(name, summary[name], estimators[name])));
  byId('metrics').append(company, others);
  byId('metrics').hidden = false;
  notes.append(make('p', { textContent: countsText(settings) }));
  for (const role of ['tissue', 'haze']) notes.append(regionKey(role));
  if (settings.ci95) notes.append(make('p', { textContent: 'Interval: ' + settings.ci95 + '; a cluster is a ' + settings.ci95_cluster + '.' }));
  const list = make('ul');
  Object.entries(estimators).forEach(([name, text]) => list.append(make('li', { textContent: (FIGURES[name] || [name])[0] + ': ' + text })));
  notes.append(make('details', {}, make('summary', { textContent: 'How each figure is estimated' }), list));
}

function countsText(settings) {
  const ranges = Object.entries(settings.n_pixels_range || {})
    .map(([role, [low, high]]) => `${role} ${low === high ? low : low + ' to ' + high}`);
  return `Means over ${settings.n_frames} ${settings.n_frames === 1 ? 'frame' : 'frames'} that have regions; pixels in a frame's regions: ${ranges.join(', ')}.`;
}

function regionKey(role) {
  const swatch = make('span', { className: 'swatch' });
  swatch.style.borderColor = REGION_COLOURS[role];
  const names = [...new Set(page.regions[role])].filter((name) => name !== role).join(', ');
  return make('p', {}, swatch, `${role} region${names ? ': ' + names : ''}`);
}

function pairs(list, rows, className = '') {
  rows.forEach(([label, text, value]) => {
    const shown = make('dd', { textContent: text, className });
    if (value !== undefined && value !== null) shown.dataset.value = value;
    list.append(make('dt', { textContent: label }), shown);
  });
}

function showImageFigures() {
  const image = page.image;
  const share = (value) => (value === null ? '–' : number(100 * value, 1) + ' %');
  const rows = [
    ['Removed, mean', number(image.removed_mean_db, 2) + ' dB', image.removed_mean_db],
    ...Object.entries(image.lowered_share).map(([limit, value]) => [`Pixels lowered by more than ${limit} dB`, share(value), value]),
    ['Largest rise of any pixel', number(image.largest_rise_db, 2, true) + ' dB', image.largest_rise_db],
  ];
  if (page.planes.includes('std')) rows.push(['Spread over samples, mean', number(image.std_mean_db, 2) + ' dB', image.std_mean_db]);
  rows.push(['Pixels, all frames together', String(image.n_pixels), image.n_pixels]);
  pairs(byId('image-figures'), rows, 'number');
}

function showProvenance() {
  pairs(byId('provenance'), page.provenance);
  const step = page.dynamic_range_db / 255;
  byId('precision').textContent = `Pictures on this page are stored in 8 bits, steps of ${number(step, 2)} dB over the ` +
    `dynamic range of ${page.dynamic_range_db} dB${page.geometry.kind === 'polar' ? '; beams are drawn as a fan, bilinear' : ''}. ` +
    'Figures were computed from the full-precision result; histograms from the 8-bit levels. ' +
    '"Image" means every pixel whose input lies above the floor.';
}

// Counts of one frame, binned as the builder of the page binned all frames.
function histogramsOf(levels) {
  const places = page.planes.includes('regions')
    ? { image: (i) => levels.input[i] > 0, tissue: (i) => levels.regions[i] & 1, haze: (i) => levels.regions[i] & 2 }
    : { image: (i) => levels.input[i] > 0 };
  const counts = {};
  for (const [place, inside] of Object.entries(places)) {
    counts[place] = { input: new Array(BINS).fill(0), tissue: new Array(BINS).fill(0) };
    for (let i = 0; i < levels.input.length; i++) {
      if (!inside(i)) continue;
      counts[place].input[levels.input[i] >> 2]++;
      counts[place].tissue[levels.tissue[i] >> 2]++;
    }
  }
  return counts;
}

function showHistograms(counts) {
  const titles = { image: 'Whole image', tissue: 'Tissue region', haze: 'Haze region' };
  byId('histograms').replaceChildren(...Object.entries(counts).map(([place, { input, tissue }]) => {
    const total = input.reduce((sum, n) => sum + n, 0);
    // The floor holds whatever was blackened out; it may stick out of the picture, the rest should fill it.
    const top = Math.max(1, ...input.slice(1), ...tissue.slice(1));
    const svg = makeSvg('svg', { viewBox: `0 0 ${BINS} 100`, preserveAspectRatio: 'none', role: 'img',
      'aria-label': `${titles[place]}: distribution of input and tissue estimate` });
    svg.append(makeSvg('path', { class: 'after', d: steps(tissue, top) }), makeSvg('path', { class: 'before', d: steps(input, top) }));
    const figure = make('div', { className: 'histogram' }, make('div', {}, make('strong', { textContent: titles[place] }),
      make('small', { textContent: total ? ` ${total} pixels; at the floor ${floorShare(input, total)} before, ${floorShare(tissue, total)} after` : ' no pixels in this frame' })), svg);
    figure.append(make('div', { className: 'axis' },
      ...[1, 0.75, 0.5, 0.25, 0].map((share) => make('span', { textContent: number(-share * page.dynamic_range_db, 0) + (share ? '' : ' dB') }))));
    figure.dataset.place = place;
    return figure;
  }));
}

const floorShare = (counts, total) => number((100 * counts[0]) / total, 1) + ' %';

function steps(counts, top) {
  const height = (n) => (100 - 100 * Math.min(1, n / top)).toFixed(2);
  return 'M0 100' + counts.map((n, k) => `V${height(n)}H${k + 1}`).join('') + 'V100';
}

// What was removed on average, frame by frame, behind the slider that seeks.
function showTrace() {
  const values = page.image.removed_mean_db_by_frame.map((value) => value ?? 0);
  if (values.length < 2) return;
  const top = Math.max(...values, 0.1);
  const svg = byId('trace');
  svg.setAttribute('viewBox', `0 0 ${values.length - 1} 100`);
  svg.append(makeSvg('polyline', { points: values.map((value, k) => `${k},${(96 - (88 * value) / top).toFixed(2)}`).join(' ') }));
}
