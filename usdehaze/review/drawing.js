// Pictures on the page: pixels, outlines, crosshair and the values under it.

function addPicture(name, description, { width, height, resample } = view) {
  const box = byId('figure-' + name).querySelector('.picture');
  const canvas = make('canvas', { width, height });
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', description);
  const overlay = make('canvas');
  overlay.setAttribute('aria-hidden', 'true');
  box.append(canvas, overlay);
  const context = canvas.getContext('2d', { alpha: false });
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer).fill(BLACK);
  pictures.push({ name, canvas, context, image, pixels, resample, overlay });
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
      paint(picture.pixels, current[name], palettes[name], picture.resample);
      picture.context.putImageData(picture.image, 0, 0);
    }
  }
}

// Input left of the line, tissue right of it; all input while the key is held.
function drawWipe(picture) {
  const { context, image, pixels, resample } = picture;
  const line = state.held ? view.width : Math.round((view.width * state.wipe) / 100);
  for (const [name, from, to] of [['input', 0, line], ['tissue', line, view.width]]) {
    if (to === from) continue;
    paint(pixels, current[name], palettes[name], resample);
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
    const across = [u - dx, v, u - dx / 3, v, u + dx / 3, v, u + dx, v];
    const down = [u, v - dy, u, v - dy / 3, u, v + dy / 3, u, v + dy];
    line([...across, ...down], '#ff5', 1.25);
  }
}

function findOutlines() {
  if (!current.regions) return;
  outlines = { tissue: outline(current.regions, 1, view), haze: outline(current.regions, 2, view) };
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
  const text = state.point && current ? readout(state.point) : 'Point at a picture to read its values.';
  if (byId('readout').textContent !== text) byId('readout').textContent = text; // a change costs a layout of the page
}

function readout({ column, row }) {
  const i = row * page.width + column;
  const dbPerLevel = page.dynamic_range_db / 255;
  const level = (name) => `${name} ${number((current[name][i] - 255) * dbPerLevel, 1)}`;
  const difference = (name, label) => `${label} ${number(current[name][i] * dbPerLevel, 1)}`;
  const parts = [level('input'), level('tissue'), level('haze'), difference('removed', 'removed')];
  if (current.std) parts.push(difference('std', 'spread'));
  return `column ${column}, row ${row}: ${parts.join(', ')} dB`;
}
