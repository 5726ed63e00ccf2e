// Controls: buttons, sliders and keys change the state, and the pictures follow it.

function setView(name) {
  state.view = document.body.dataset.view = name;
  for (const each of ['side', 'wipe', 'haze', 'two']) byId('view-' + each).setAttribute('aria-pressed', each === name);
  draw();
  drawOverlays();
}

function setHeld(held) {
  if (state.held === held) return;
  state.held = held;
  byId('blink').setAttribute('aria-pressed', held);
  for (const name of ['tissue', 'other_tissue']) {
    byId('figure-' + name).querySelector('figcaption span').textContent = held ? 'Input, held' : 'Tissue estimate';
  }
  for (const name of ['tissue', 'other_tissue', 'wipe']) {
    byId('figure-' + name).querySelector('.picture').classList.toggle('held', held);
  }
  draw();
}

// Grey levels, colour maps, line: the state follows the sliders, the pictures follow the state.
function setLevels(changes) {
  Object.assign(state, changes);
  for (const [id, value, text] of [
    ['range', state.rangeDb, `${state.rangeDb} dB`],
    ['gain', state.gainDb, `${number(state.gainDb, 0, true)} dB`],
    ['map-top', state.mapTopDb, `${state.mapTopDb} dB`],
    ['wipe', state.wipe, `${state.wipe} %`],
    ['haze-gain', state.hazeGainDb, `${number(state.hazeGainDb, 0, true)} dB`],
    ['strength', state.strength, `${state.strength} %`],
    ['keep', state.keep, `${state.keep} ×`],
  ]) {
    byId(id).value = value;
    byId(id).setAttribute('aria-valuetext', text);
    if (byId(id + '-says')) byId(id + '-says').textContent = text;
  }
  byId('haze-gain-shown').textContent = `${number(state.gainDb + state.hazeGainDb, 0, true)} dB`;
  makePalettes();
  showScales();
  draw();
}

// How much of the removal is applied: pictures, figures and histograms of the frame shown follow.
function setRemoval(changes) {
  setLevels(changes);
  if (!unscaled) return;
  current = { ...scaled(unscaled, state), regions: current.regions };
  draw();
  showReadout();
  if (!state.playing) showFrameFigures();
  byId('as-made').hidden = state.strength === 100 && state.keep === 0;
}

function reset() {
  const { hazeGainDb } = atFirst;
  setLevels({ rangeDb: Math.round(page.dynamic_range_db), gainDb: 0, hazeGainDb, mapTopDb: 20, wipe: 50 });
  setRemoval({ strength: 100, keep: 0 });
  resetZoom();
}

const moveLine = (by) => setLevels({ wipe: clamp(state.wipe + by, 0, 100) });
const changeRange = (by) => setLevels({ rangeDb: clamp(state.rangeDb + by, +byId('range').min, +byId('range').max) });
const changeGain = (by) => setLevels({ gainDb: clamp(state.gainDb + by, -20, 20) });

function showScales() {
  const stops = MAP_STOPS.map((colour) => `rgb(${colour.join(' ')})`).join(', ');
  for (const [name, share] of [['removed', 1], ['other_removed', 1], ['std', SPREAD_SHARE]]) {
    const scale = byId('figure-' + name).querySelector('.scale');
    scale.style.background = `linear-gradient(to right, ${stops})`;
    scale.replaceChildren(
      make('span', { textContent: '0 dB' }), make('span', { textContent: `${state.mapTopDb * share} dB or more` }));
  }
}

function setOutlines(shown) {
  state.outlines = shown;
  byId('outlines').setAttribute('aria-pressed', shown);
  drawOverlays();
}

function setLoop(loop) {
  state.loop = loop;
  byId('loop').setAttribute('aria-pressed', loop);
}

function setAllFrames(all) {
  state.allFrames = all;
  byId('histogram-all').setAttribute('aria-pressed', all);
  byId('histogram-frame').setAttribute('aria-pressed', !all);
  byId('histograms-say').textContent = all
    ? 'Of the result as it was made, regions of --roi; follows neither the frame shown, the sliders nor regions drawn here.'
    : 'Follows the frame shown, the sliders and regions drawn here.';
  if (all) showHistograms(page.histograms);
  else if (current) showHistograms(histogramsOf(current));
}

const KEYS = {
  ' ': () => (state.playing ? pause() : play()),
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  Home: () => { pause(); show(0); },
  End: () => { pause(); show(page.n_frames - 1); },
  '-': () => changeSpeed(-1),
  '+': () => changeSpeed(1),
  '=': () => changeSpeed(1),
  l: () => setLoop(!state.loop),
  v: () => setView({ side: 'wipe', wipe: 'haze', haze: page.against ? 'two' : 'side', two: 'side' }[state.view]),
  b: () => setHeld(true),
  '[': () => moveLine(-5),
  ']': () => moveLine(5),
  d: () => changeRange(5),
  D: () => changeRange(-5),
  g: () => changeGain(1),
  G: () => changeGain(-1),
  r: () => setOutlines(!state.outlines),
  m: () => setMarks(!state.marks),
  ',': () => goRisk(-1),
  '.': () => goRisk(1),
  s: () => setRemoval({ strength: clamp(state.strength + 5, 0, 100) }),
  S: () => setRemoval({ strength: clamp(state.strength - 5, 0, 100) }),
  h: () => setLevels({ hazeGainDb: clamp(state.hazeGainDb + 2, 0, 40) }),
  H: () => setLevels({ hazeGainDb: clamp(state.hazeGainDb - 2, 0, 40) }),
  n: () => setDrawing(!draft),
  z: () => zoomAt([0.5, 0.5], 1.5),
  Z: () => zoomAt([0.5, 0.5], 1 / 1.5),
  0: reset,
};

// Keys that the focused control needs for itself stay with it.
function takesKey(target, key) {
  if (target.matches('select, input[type="text"]')) return true;
  if (target.matches('input[type="range"]')) return /^(Arrow|Home|End|Page)/.test(key);
  if (target.matches('.scroll')) return /^(Arrow|Home|End)/.test(key);
  return key === ' ' && target.matches('button, summary');
}

function listen() {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || takesKey(event.target, event.key)) return;
    const action = (draft && DRAFT_KEYS[event.key]) || KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.addEventListener('keyup', (event) => event.key === 'b' && setHeld(false));
  window.addEventListener('blur', () => setHeld(false));
  const clicks = {
    play: KEYS[' '], back: () => step(-1), on: () => step(1), loop: KEYS.l, reset,
    'view-side': () => setView('side'), 'view-wipe': () => setView('wipe'), 'view-haze': () => setView('haze'),
    'view-two': () => setView('two'), outlines: KEYS.r, marks: KEYS.m,
    'histogram-frame': () => setAllFrames(false), 'histogram-all': () => setAllFrames(true),
  };
  for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener('click', action);
  const slides = { range: 'rangeDb', gain: 'gainDb', 'map-top': 'mapTopDb', wipe: 'wipe', 'haze-gain': 'hazeGainDb' };
  for (const [id, name] of Object.entries(slides)) {
    byId(id).addEventListener('input', (event) => setLevels({ [name]: Number(event.target.value) }));
  }
  for (const name of ['strength', 'keep']) {
    byId(name).addEventListener('input', (event) => setRemoval({ [name]: Number(event.target.value) }));
  }
  byId('seek').addEventListener('input', (event) => { pause(); show(Number(event.target.value)); });
  byId('speed').addEventListener('change', (event) => setSpeed(Number(event.target.value)));
  const blink = byId('blink');
  blink.addEventListener('pointerdown', () => setHeld(true));
  for (const end of ['pointerup', 'pointerleave', 'pointercancel', 'blur']) {
    blink.addEventListener(end, () => setHeld(false));
  }
  blink.addEventListener('keydown', (event) => (event.key === ' ' || event.key === 'Enter') && setHeld(true));
  blink.addEventListener('keyup', () => setHeld(false));
  listenToRegions();
  new ResizeObserver(() => { draw(); drawOverlays(); }).observe(byId('stage'));
  window.addEventListener('beforeprint', sayPrinted);
}

// What buttons and sliders say on a screen, for paper.
function sayPrinted() {
  const sliders = [['Range', 'range'], ['gain', 'gain'], ['haze gain', 'haze-gain'], ['removal', 'strength']];
  const levels = sliders.map(([label, id]) => `${label} ${byId(id + '-says').textContent}`).join(', ');
  const place = byId('frame-says').textContent;
  byId('printed').textContent = `${place[0].toUpperCase()}${place.slice(1)}. ${levels}, zoom ${byId('zoom-says').textContent}.`;
}

function start() {
  byId('what').textContent = [
    `${page.n_frames} ${page.n_frames === 1 ? 'frame' : 'frames'}`,
    `${page.height} × ${page.width} (rows × columns)`,
    number(1 / page.frame_time_s, 1) + ' frames/s' + (page.frame_time_known ? '' : ' assumed'),
    `${page.dynamic_range_db} dB`,
    ...(page.source_sha256 ? [`source ${page.source_sha256.slice(0, 12)}`] : []),
  ].join(', ');
  document.documentElement.style.setProperty('--aspect', view.aspect);
  addPicture('input', 'Input');
  addPicture('tissue', 'Tissue estimate');
  addPicture('wipe', 'Input left of the line, tissue estimate right of it');
  addPicture('haze', 'Haze estimate');
  addPicture('removed', 'What was removed, in dB, as a colour map');
  const spread = page.planes.includes('std');
  if (spread) addPicture('std', 'Spread of the tissue estimate, in dB, as a colour map');
  showAgainst();
  byId('figure-std').hidden = !spread;
  document.body.classList.toggle('without-std', !spread);
  drawn.push(...page.polygons);
  byId('keep-label').hidden = !spread;
  byId('range').max = Math.max(20, state.rangeDb);
  byId('seek').max = page.n_frames - 1;
  for (const speed of SPEEDS) byId('speed').append(make('option', { value: speed, textContent: speed + ' ×' }));
  setSpeed(1);
  showMetrics();
  showImageFigures();
  showProvenance();
  showTrace();
  showRisk();
  setAllFrames(false);
  reset();
  showDrawn();
  listen();
  show(0).then(showHaze);
}

// Lifts the haze picture so that its brightest hundredth in the first frame lies near white.
function showHaze() {
  if (!current) return;
  const counts = new Array(LEVELS).fill(0);
  for (const level of current.haze) if (level) counts[level]++;
  let above = total(counts) / 100;
  let level = LEVELS - 1;
  while (level > 0 && (above -= counts[level]) > 0) level--;
  atFirst.hazeGainDb = clamp(Math.round(HAZE_WHITE_DB - toDb(level)), 0, 40);
  setLevels(atFirst);
}

start();
