// Histograms of input and tissue estimate, and the curve behind the slider that seeks.

const BINS = 64; // of four levels each

// Counts of one frame, binned as the builder of the page binned all frames.
function histogramsOf(levels) {
  const places = { image: (i) => levels.input[i] > 0 && (!levels.image || levels.image[i]) };
  if (levels.regions) {
    places.tissue = (i) => levels.regions[i] & 1;
    places.haze = (i) => levels.regions[i] & 2;
    const roles = drawn.length ? drawn.map(({ role }) => role) : Object.keys(page.regions.names);
    if (roles.includes('faint')) places.faint = (i) => levels.regions[i] & 4;
  }
  const counts = {};
  for (const [place, inside] of Object.entries(places)) {
    const [input, tissue] = [new Array(BINS).fill(0), new Array(BINS).fill(0)];
    for (let i = 0; i < levels.input.length; i++) {
      if (!inside(i)) continue;
      input[levels.input[i] >> 2]++;
      tissue[levels.tissue[i] >> 2]++;
    }
    counts[place] = { input, tissue };
  }
  return counts;
}

function showHistograms(counts) {
  byId('histograms').replaceChildren(...Object.entries(counts).map(([place, planes]) => histogram(place, planes)));
}

function histogram(place, { input, tissue }) {
  const kind = place !== 'image' && automatic() ? ', automatic' : '';
  const title = { image: 'Whole image', tissue: 'Tissue region', haze: 'Haze region', faint: 'Faint region' }[place] + kind;
  const total = input.reduce((sum, n) => sum + n, 0);
  const floor = (plane) => percent(plane[0] / total);
  const lowest = `${number(page.dynamic_range_db / BINS, 1)} dB`;
  const floors = `in the lowest ${lowest} ${floor(input)} before, ${floor(tissue)} after`;
  const says = total ? `${total} pixels; ${floors}` : 'none in this frame';
  const ticks = [-1, -0.75, -0.5, -0.25, 0].map((share) => `${number(share * page.dynamic_range_db, 0)} dB`);
  const top = percent(topOf(input, tissue) / Math.max(1, total));
  const element = make('div', { className: 'histogram' },
    make('strong', { textContent: title }), make('small', { textContent: says }),
    make('small', { className: 'top', textContent: `full height: ${top} of the pixels in ${lowest}` }),
    plot(`${title}: distribution of input and tissue estimate`, input, tissue),
    make('div', { className: 'axis' }, ...ticks.map((textContent) => make('span', { textContent }))));
  element.dataset.place = place;
  return element;
}

// The first bin holds whatever lies on the floor; it may stick out at the top, the rest should fill the height.
const topOf = (input, tissue) => Math.max(1, ...input.slice(1), ...tissue.slice(1));

function plot(label, input, tissue) {
  const top = topOf(input, tissue);
  const frame = { viewBox: `0 0 ${BINS} 100`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label };
  const svg = makeSvg('svg', frame);
  svg.append(
    makeSvg('path', { class: 'after', d: steps(tissue, top) }),
    makeSvg('path', { class: 'before', d: steps(input, top) }));
  return svg;
}

function steps(counts, top) {
  const y = (n) => (100 - 100 * Math.min(1, n / top)).toFixed(2);
  return 'M0 100' + counts.map((n, k) => `V${y(n)}H${k + 1}`).join('') + 'V100';
}

// What was removed on average, frame by frame.
function showTrace() {
  const values = page.image.removed_mean_db_by_frame.map((value) => value ?? 0);
  if (values.length < 2) return;
  const top = Math.max(...values, 0.1);
  const points = values.map((value, k) => `${k},${(96 - (88 * value) / top).toFixed(2)}`).join(' ');
  byId('trace').setAttribute('viewBox', `0 0 ${values.length - 1} 100`);
  byId('trace').append(makeSvg('polyline', { points }));
  byId('trace-says').textContent = `removed, 0 to ${number(top, 1)} dB`;
  byId('trace-says').hidden = false;
}
