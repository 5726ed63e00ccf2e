// The player and its controls. Data lie in the elements page-json, metrics-json and frame-N.

const page = JSON.parse(document.getElementById('page-json').textContent);
const metrics = JSON.parse(document.getElementById('metrics-json').textContent);
const REGION_COLOURS = { tissue: '#40e060', haze: '#ffa020' };
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const SPREAD_SHARE = 1 / 4; // spread is small beside what is removed: its colours end at a quarter of the dB
const AHEAD = 12; // frames unpacked before they are due

const view = makeView();
const state = {
  frame: 0, playing: false, speed: 1, loop: true, view: 'side', held: false, outlines: true, allFrames: false,
  rangeDb: Math.round(page.dynamic_range_db), gainDb: 0, mapTopDb: 20, wipe: 50, point: null,
};
const palettes = {};
const pictures = []; // {name, canvas, context, image, pixels, overlay}
let current = null; // planes of the frame that is shown
let outlines = null; // sides of each role's region, of the frame that is shown

function addPicture(name, description) {
  const box = byId('figure-' + name).querySelector('.picture');
  const canvas = make('canvas', { width: view.width, height: view.height });
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', description);
  const overlay = make('canvas');
  overlay.setAttribute('aria-hidden', 'true');
  box.append(canvas, overlay);
  const context = canvas.getContext('2d', { alpha: false });
  const image = context.createImageData(view.width, view.height);
  const pixels = new Uint32Array(image.data.buffer).fill(BLACK);
  pictures.push({ name, canvas, context, image, pixels, overlay });
  overlay.addEventListener('pointermove', (event) => pointAt(name, overlay, event));
  overlay.addEventListener('pointerleave', () => { state.point = null; drawOverlays(); showReadout(); });
}

function makePalettes() {
  const grey = greyPalette(state.rangeDb, state.gainDb);
  palettes.input = palettes.tissue = palettes.haze = grey;
  palettes.removed = mapPalette(state.mapTopDb);
  palettes.std = mapPalette(state.mapTopDb * SPREAD_SHARE);
}

const visible = (picture) => picture.canvas.offsetParent !== null;

function draw() {
  if (!current) return;
  for (const picture of pictures) {
    if (!visible(picture)) continue;
    if (picture.name === 'wipe') drawWipe(picture);
    else {
      const name = picture.name === 'tissue' && state.held ? 'input' : picture.name;
      paint(picture.pixels, current[name], palettes[name], view.resample);
      picture.context.putImageData(picture.image, 0, 0);
    }
  }
  drawOverlays();
}

// Input left of the line, tissue right of it; all input while the key is held.
function drawWipe(picture) {
  const { context, image, pixels } = picture;
  const line = state.held ? view.width : Math.round((view.width * state.wipe) / 100);
  for (const [name, from, to] of [['input', 0, line], ['tissue', line, view.width]]) {
    if (to === from) continue;
    paint(pixels, current[name], palettes[name], view.resample);
    context.putImageData(image, 0, 0, from, 0, to - from, view.height);
  }
}

function drawOverlays() {
  for (const picture of pictures) if (visible(picture)) drawOverlay(picture);
}

function drawOverlay({ name, overlay }) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(overlay.clientWidth * scale);
  const height = Math.round(overlay.clientHeight * scale);
  if (overlay.width !== width || overlay.height !== height) Object.assign(overlay, { width, height });
  const context = overlay.getContext('2d');
  context.clearRect(0, 0, width, height);
  const line = (sides, colour, thickness) => {
    context.beginPath();
    for (let i = 0; i < sides.length; i += 4) {
      context.moveTo(sides[i] * width, sides[i + 1] * height);
      context.lineTo(sides[i + 2] * width, sides[i + 3] * height);
    }
    Object.assign(context, { strokeStyle: colour, lineWidth: thickness * scale, lineCap: 'round' });
    context.stroke();
  };
  if (state.outlines && outlines) {
    for (const [role, sides] of Object.entries(outlines)) {
      line(sides, '#000a', 3);
      line(sides, REGION_COLOURS[role], 1.25);
    }
  }
  if (name === 'wipe' && !state.held) line([state.wipe / 100, 0, state.wipe / 100, 1], '#fffc', 1.5);
  if (state.point) {
    const { u, v } = state.point;
    const [dx, dy] = [(9 * scale) / width, (9 * scale) / height];
    line([u - dx, v, u - dx / 3, v, u + dx / 3, v, u + dx, v, u, v - dy, u, v - dy / 3, u, v + dy / 3, u, v + dy], '#ff5', 1.25);
  }
}

function findOutlines() {
  if (!current.regions) return;
  outlines = { tissue: outline(current.regions, 1, view), haze: outline(current.regions, 2, view) };
}

// Shows a frame once it is unpacked, unless another one was asked for meanwhile.
async function show(frame) {
  state.frame = frame;
  showPlace();
  let planes;
  try {
    planes = await planesOf(frame);
  } catch (error) {
    return complain(error);
  }
  if (state.frame !== frame) return;
  const sameRegions = current && current.regions && planes.regions.every((value, i) => value === current.regions[i]);
  current = planes;
  if (!sameRegions) findOutlines();
  draw();
  showReadout();
  if (!state.allFrames && !state.playing) showHistograms(histogramsOf(current));
  document.body.dataset.shown = frame;
  prefetch(frame, Math.min(AHEAD, page.n_frames - 1));
}

function complain(error) {
  const old = typeof DecompressionStream === 'undefined';
  byId('trouble').textContent = old
    ? 'This browser cannot unpack the frames: it needs Chrome 103, Edge 103, Firefox 113, Safari 16.4 or newer.'
    : 'The page cannot be shown: ' + error.message;
  byId('trouble').hidden = false;
  pause();
}

function showPlace() {
  const time = page.frame_time_known ? `, ${number(state.frame * page.frame_time_s, 2)} s` : '';
  byId('seek').value = state.frame;
  byId('frame-says').textContent = `frame ${page.first_frame + state.frame} (${page.first_frame} to ${page.first_frame + page.n_frames - 1})${time}`;
  byId('seek').setAttribute('aria-valuetext', byId('frame-says').textContent);
}

// Steps as many frames as are due; waits where the next one is not unpacked yet.
let lastTick = 0;
let due = 0;
function tick(now) {
  if (!state.playing) return;
  requestAnimationFrame(tick);
  due = Math.min(due + ((now - lastTick) / 1000 / page.frame_time_s) * state.speed, 8);
  lastTick = now;
  const stride = Math.floor(due);
  if (stride < 1) return;
  const next = state.frame + stride;
  if (next >= page.n_frames && !state.loop) {
    show(page.n_frames - 1);
    return pause();
  }
  if (!ready.has(next % page.n_frames)) return void planesOf(next % page.n_frames).catch(complain);
  due -= stride;
  show(next % page.n_frames);
}

function play() {
  if (page.n_frames < 2 || state.playing) return;
  if (state.frame === page.n_frames - 1 && !state.loop) state.frame = 0;
  Object.assign(state, { playing: true });
  due = 0;
  lastTick = performance.now();
  requestAnimationFrame(tick);
  showPlaying();
}

function pause() {
  state.playing = false;
  showPlaying();
  if (current && !state.allFrames) showHistograms(histogramsOf(current));
}

function showPlaying() {
  byId('play').classList.toggle('playing', state.playing);
  byId('play').setAttribute('aria-label', state.playing ? 'Pause' : 'Play');
}

function step(frames) {
  pause();
  show((state.frame + frames + page.n_frames) % page.n_frames);
}

function setSpeed(speed) {
  state.speed = speed;
  byId('speed').value = speed;
}

const changeSpeed = (by) => setSpeed(SPEEDS[clamp(SPEEDS.indexOf(state.speed) + by, 0, SPEEDS.length - 1)]);

function setView(name) {
  state.view = document.body.dataset.view = name;
  for (const each of ['side', 'wipe']) byId('view-' + each).setAttribute('aria-pressed', each === name);
  draw();
}

function setHeld(held) {
  if (state.held === held) return;
  state.held = held;
  byId('blink').setAttribute('aria-pressed', held);
  byId('figure-tissue').querySelector('figcaption').textContent = held ? 'Input, held' : 'Tissue estimate';
  for (const name of ['tissue', 'wipe']) byId('figure-' + name).querySelector('.picture').classList.toggle('held', held);
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
  ]) {
    byId(id).value = value;
    byId(id).setAttribute('aria-valuetext', text);
    if (byId(id + '-says')) byId(id + '-says').textContent = text;
  }
  makePalettes();
  showScales();
  draw();
}

const reset = () => setLevels({ rangeDb: Math.round(page.dynamic_range_db), gainDb: 0, mapTopDb: 20, wipe: 50 });
const moveLine = (by) => setLevels({ wipe: clamp(state.wipe + by, 0, 100) });
const changeRange = (by) => setLevels({ rangeDb: clamp(state.rangeDb + by, +byId('range').min, +byId('range').max) });
const changeGain = (by) => setLevels({ gainDb: clamp(state.gainDb + by, -20, 20) });

function showScales() {
  const stops = MAP_STOPS.map((colour) => `rgb(${colour.join(' ')})`).join(', ');
  for (const [name, share] of [['removed', 1], ['std', SPREAD_SHARE]]) {
    const scale = byId('figure-' + name).querySelector('.scale');
    scale.style.background = `linear-gradient(to right, ${stops})`;
    scale.replaceChildren(make('span', { textContent: '0' }), make('span', { textContent: `${state.mapTopDb * share} dB or more` }));
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
  if (all) showHistograms(page.histograms);
  else if (current) showHistograms(histogramsOf(current));
}

function pointAt(name, overlay, event) {
  const box = overlay.getBoundingClientRect();
  const [u, v] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  if (name === 'wipe' && event.buttons) return setLevels({ wipe: clamp(Math.round(200 * u) / 2, 0, 100), point: null });
  const [column, row] = view.toNative(u, v).map(Math.round);
  const inside = column >= 0 && row >= 0 && column < page.width && row < page.height;
  state.point = inside ? { u, v, column, row } : null;
  drawOverlays();
  showReadout();
}

function showReadout() {
  if (!state.point || !current) {
    byId('readout').textContent = 'Point at a picture to read its values.';
    return;
  }
  const { column, row } = state.point;
  const i = row * page.width + column;
  const share = page.dynamic_range_db / 255;
  const level = (name) => `${name} ${number((current[name][i] - 255) * share, 1)}`;
  const difference = (name, label) => `${label} ${number(current[name][i] * share, 1)}`;
  const parts = [level('input'), level('tissue'), level('haze'), difference('removed', 'removed')];
  if (current.std) parts.push(difference('std', 'spread'));
  byId('readout').textContent = `column ${column}, row ${row}: ${parts.join(', ')} dB`;
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
  v: () => setView(state.view === 'side' ? 'wipe' : 'side'),
  b: () => setHeld(true),
  '[': () => moveLine(-5),
  ']': () => moveLine(5),
  d: () => changeRange(5),
  D: () => changeRange(-5),
  g: () => changeGain(1),
  G: () => changeGain(-1),
  r: () => setOutlines(!state.outlines),
  0: reset,
};

// Keys that the focused control needs for itself stay with it.
function takesKey(target, key) {
  if (target.matches('select')) return true;
  if (target.matches('input[type="range"]')) return /^(Arrow|Home|End|Page)/.test(key);
  if (target.matches('.scroll')) return /^(Arrow|Home|End)/.test(key);
  return key === ' ' && target.matches('button, summary');
}

function listen() {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || takesKey(event.target, event.key)) return;
    const action = KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.addEventListener('keyup', (event) => event.key === 'b' && setHeld(false));
  window.addEventListener('blur', () => setHeld(false));
  const clicks = {
    play: KEYS[' '], back: () => step(-1), on: () => step(1), loop: KEYS.l, reset,
    'view-side': () => setView('side'), 'view-wipe': () => setView('wipe'), outlines: KEYS.r,
    'histogram-frame': () => setAllFrames(false), 'histogram-all': () => setAllFrames(true),
  };
  for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener('click', action);
  const slides = { range: 'rangeDb', gain: 'gainDb', 'map-top': 'mapTopDb', wipe: 'wipe' };
  for (const [id, name] of Object.entries(slides)) {
    byId(id).addEventListener('input', (event) => setLevels({ [name]: Number(event.target.value) }));
  }
  byId('seek').addEventListener('input', (event) => { pause(); show(Number(event.target.value)); });
  byId('speed').addEventListener('change', (event) => setSpeed(Number(event.target.value)));
  const blink = byId('blink');
  blink.addEventListener('pointerdown', () => setHeld(true));
  for (const end of ['pointerup', 'pointerleave', 'pointercancel', 'blur']) blink.addEventListener(end, () => setHeld(false));
  blink.addEventListener('keydown', (event) => (event.key === ' ' || event.key === 'Enter') && setHeld(true));
  blink.addEventListener('keyup', () => setHeld(false));
  const wipe = byId('figure-wipe').querySelector('.picture');
  wipe.addEventListener('pointerdown', (event) => {
    event.target.setPointerCapture(event.pointerId);
    pointAt('wipe', event.target, event);
  });
  new ResizeObserver(draw).observe(byId('stage'));
}

function start() {
  const rate = page.frame_time_known ? `${number(1 / page.frame_time_s, 1)} frames/s` : 'frame rate not known, played at 20 frames/s';
  byId('what').textContent = `${page.n_frames} ${page.n_frames === 1 ? 'frame' : 'frames'}, ${page.height} × ${page.width} (rows × columns), ` +
    `${rate}, ${page.dynamic_range_db} dB` + (page.source_sha256 ? `, source ${page.source_sha256.slice(0, 12)}` : '');
  document.documentElement.style.setProperty('--aspect', view.aspect);
  addPicture('input', 'Input');
  addPicture('tissue', 'Tissue estimate');
  addPicture('wipe', 'Input left of the line, tissue estimate right of it');
  addPicture('haze', 'Haze estimate');
  addPicture('removed', 'What was removed, in dB, as a colour map');
  if (page.planes.includes('std')) addPicture('std', 'Spread of the tissue estimate over samples, in dB, as a colour map');
  byId('figure-std').hidden = !page.planes.includes('std');
  document.body.classList.toggle('without-std', !page.planes.includes('std'));
  byId('outlines').hidden = page.regions === null;
  byId('range').max = Math.max(20, state.rangeDb);
  byId('seek').max = page.n_frames - 1;
  for (const speed of SPEEDS) byId('speed').append(make('option', { value: speed, textContent: speed + ' ×' }));
  setSpeed(1);
  showMetrics();
  showImageFigures();
  showProvenance();
  showTrace();
  reset();
  listen();
  show(0);
}

start();
