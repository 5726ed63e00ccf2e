// Figures of regions and of the whole image, and where everything comes from.

// Name of a figure, digits after the point, and what it says. gCNR never stands alone: its company comes with it.
const COMPANY = ['gcnr', 'gcnr_corrected', 'ks_tissue', 'tissue_shift_db'];
const FIGURES = {
  gcnr: ['gCNR', 3, 'tissue against haze region; 1 = no overlap'],
  gcnr_corrected: ['gCNR, bias removed', 3, '0 = same distribution'],
  ks_tissue: ['KS, tissue region', 3, 'input to output; 0 = untouched'],
  tissue_shift_db: ['Mean shift, tissue region', 2, 'dB; 0 = untouched'],
  ks_haze: ['KS, haze region', 3, 'input to output'],
  haze_shift_db: ['Mean shift, haze region', 2, 'dB'],
  ks_faint: ['KS, faint region', 3, 'input to output; 0 = untouched'],
  faint_shift_db: ['Mean shift, faint region', 2, 'dB; 0 = untouched'],
  faint_gone_share: ['Share gone, faint region', 3, 'seen before, at the floor after; 0 = untouched'],
  faint_contrast_db: ['Contrast, faint region', 2, 'over haze region, dB'],
  mean_tissue_db: ['Mean, tissue region', 2, 'dB'],
  mean_haze_db: ['Mean, haze region', 2, 'dB'],
  cnr: ['CNR', 3, 'of the dB image'],
  cnr_linear: ['CNR, linear', 3, 'of amplitudes'],
  contrast_db: ['Contrast', 2, 'tissue over haze region, dB'],
  speckle_snr_tissue: ['Speckle SNR, tissue region', 3, '1.91 = fully developed speckle'],
  speckle_snr_haze: ['Speckle SNR, haze region', 3, ''],
};
const about = (name) => FIGURES[name] || [name, 3, ''];
const isShift = (name) => name.endsWith('_shift_db');

function cell(value, digits, signed) {
  const element = make('td', { textContent: number(value, digits, signed) });
  if (value === null || value === undefined) element.title = 'not defined for this figure';
  else element.dataset.value = value;
  return element;
}

function intervalCell(interval, digits, signed) {
  if (!interval) return make('td', { textContent: 'not known' });
  const element = make('td', { textContent: interval.map((end) => number(end, digits, signed)).join(' to ') });
  element.dataset.value = interval.join(' ');
  return element;
}

function figureRow(name, entry, estimator = '') {
  const [label, digits, hint] = about(name);
  const bias = entry.bias && ['input', 'tissue'].map((part) => number(entry.bias[part], digits));
  const { n_frames } = metrics.settings;
  const said = [hint, bias && `bias ${bias[0]} before, ${bias[1]} after`,
    entry.n_frames < n_frames && `over ${entry.n_frames} of ${n_frames} frames`];
  const small = make('small', { textContent: said.filter(Boolean).join('; ') });
  const row = make('tr', {},
    make('th', { scope: 'row', title: estimator }, label, small),
    cell(entry.input, digits, false),
    cell(entry.tissue, digits, isShift(name)),
    cell(entry.delta, digits, true),
    intervalCell(entry.ci95, digits, entry.delta !== null || isShift(name)));
  row.dataset.figure = name;
  return row;
}

function showMetrics() {
  if (!metrics) {
    const missing = page.regions
      ? 'None of these frames has both a tissue and a haze region, or a faint one.'
      : 'No regions of interest were given: no figures of regions. Build the page with --roi FILE to have them.';
    byId('metrics-says').hidden = true;
    byId('metrics-notes').append(make('p', { textContent: missing }));
    return;
  }
  const { summary, settings } = metrics;
  const rows = (names) => names.map((name) => figureRow(name, summary[name], settings.estimators[name]));
  const together = COMPANY.filter((name) => name in summary);
  const others = Object.keys(summary).filter((name) => !together.includes(name));
  const title = make('th', { colSpan: 5, scope: 'rowgroup' }, make('small', { textContent: 'Read together' }));
  byId('metrics').append(
    make('tbody', { className: 'company' }, make('tr', { className: 'lead' }, title), ...rows(together)),
    make('tbody', {}, ...rows(others)));
  byId('metrics').hidden = false;
  showMetricsNotes(settings);
}

function showMetricsNotes(settings) {
  const ranges = Object.entries(settings.n_pixels_range)
    .map(([role, [low, high]]) => `${role} ${low === high ? low : low + ' to ' + high}`);
  const n = settings.n_frames;
  const margin = settings.regions.margin_px;
  const eroded = margin ? `, eroded by ${margin} pixels` : '';
  const frames = n === 1 ? 'One frame that has regions' : `Means over ${n} frames that have regions`;
  const list = Object.entries(settings.estimators)
    .map(([name, text]) => make('li', { textContent: `${about(name)[0]}: ${text}` }));
  byId('metrics-notes').append(
    ...settings.warnings.map((warning) => make('p', { className: 'warning', textContent: 'Note: ' + warning })),
    make('p', { textContent: `${frames}; pixels in a frame's regions${eroded}: ${ranges.join(', ')}.` }),
    ...Object.keys(page.regions.names).map(regionKey),
    make('details', {}, make('summary', { textContent: 'How each figure is estimated' }), make('ul', {}, ...list),
      make('p', { textContent: `Interval: ${settings.ci95}. A cluster here is a ${settings.ci95_cluster}.` })));
}

// Figures of the regions in the frame shown, from its 8-bit levels and as the sliders have it.
function showLiveFigures() {
  const regions = current.regions;
  byId('live-figures').hidden = !regions;
  if (!regions) return;
  const { n_pixels, figures } = figuresOfRegions(current, regions);
  const second = page.against && figuresOfRegions({ input: current.input, tissue: current.other_tissue }, regions).figures;
  byId('live').tBodies[0].replaceChildren(...Object.entries(figures).map(([name, entry]) => {
    const [label, digits, hint] = about(name);
    const row = make('tr', {},
      make('th', { scope: 'row' }, label, make('small', { textContent: hint })),
      cell(entry.input, digits, false), cell(entry.tissue, digits, isShift(name)), cell(entry.delta, digits, true));
    if (second) row.append(cell(second[name].tissue, digits, isShift(name)));
    row.dataset.figure = name;
    return row;
  }));
  const counts = Object.entries(n_pixels).filter(([, n]) => n).map(([role, n]) => `${role} ${n}`).join(', ');
  const shared = regions.reduce((sum, bits) => sum + ((bits & 3) === 3), 0);
  const sliders = [
    ...(state.strength !== 100 ? [`removal at ${state.strength} %`] : []),
    ...(state.keep ? [`${state.keep} spreads kept`] : []),
  ].join(', ');
  byId('live-says').textContent = [
    `Frame ${state.frame + 1}; ${counts ? 'pixels: ' + counts : 'no region in this frame'}`,
    ...(sliders ? [sliders] : []),
    ...(shared ? [`tissue and haze overlap in ${shared} pixels, which usdehaze validate refuses`] : []),
  ].join('; ') + '.';
}

const automatic = () => !drawn.length && page.regions !== null && page.regions.origin === 'automatic';

function regionKey(role) {
  const swatch = make('span', { className: 'swatch' });
  swatch.style.borderColor = REGION_COLOURS[role];
  const names = [...new Set(page.regions.names[role])].filter((name) => name !== role).join(', ');
  return make('p', {}, swatch, `${role} region${names ? ': ' + names : ''}`);
}

// Rows are [label, text, value]; the value is what the text was made from, where that was a number.
function pairs(list, rows, className = '') {
  for (const [label, text, value] of rows) {
    const shown = make('dd', { textContent: text, className });
    if (value !== undefined && value !== null) shown.dataset.value = value;
    list.append(make('dt', { textContent: label }), shown);
  }
}

function showImageFigures() {
  const image = page.image;
  const db = (label, value, signed) => [label, `${number(value, 2, signed)} dB`, value];
  const lowered = Object.entries(image.lowered_share)
    .map(([limit, share]) => [`Pixels lowered by more than ${limit} dB`, percent(share), share]);
  pairs(byId('image-figures'), [
    db('Removed, mean', image.removed_mean_db),
    ...lowered,
    db('Largest rise of any pixel', image.largest_rise_db, true),
    ...(page.planes.includes('std') ? [db('Spread over samples, mean', image.std_mean_db)] : []),
    ['Pixels, all frames together', String(image.n_pixels), image.n_pixels],
  ], 'number');
}

function showProvenance() {
  pairs(byId('provenance'), page.provenance);
  const step = number(page.dynamic_range_db / 255, 2);
  const fan = page.geometry.kind === 'polar' ? 'Beams are drawn as a fan, interpolated between them. ' : '';
  byId('precision').textContent =
    `Pictures on this page are stored in 8 bits: steps of ${step} dB over ${page.dynamic_range_db} dB. ${fan}` +
    'Figures were computed from the full-precision result, histograms from the 8-bit levels. ' +
    '"Image" means every pixel of the image, not of the screen around it, whose input lies above the floor.';
}
