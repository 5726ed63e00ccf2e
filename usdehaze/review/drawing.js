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
  listenToZoom(overlay);
  overlay.addEventListener('pointerdown', (event) => pressAt(name, overlay, event));
  overlay.addEventListener('pointermove', (event) => pointAt(name, overlay, event));
  for (const end of ['pointerup', 'pointercancel']) {
    overlay.addEventListener(end, (event) => { fingers.delete(event.pointerId); releaseRegions(); });
  }
  overlay.addEventListener('pointerleave', () => { state.point = null; drawOverlays(); showReadout(); });
}

function makePalettes() {
  const grey = greyPalette(state.rangeDb, state.gainDb);
  palettes.input = palettes.tissue = palettes.other_tissue = grey;
  palettes.haze = greyPalette(state.rangeDb, state.gainDb + state.hazeGainDb);
  palettes.removed = palettes.other_removed = mapPalette(state.mapTopDb);
  palettes.std = mapPalette(state.mapTopDb * SPREAD_SHARE);
}

const visible = (picture) => picture.canvas.offsetParent !== null;

function draw() {
  if (!current) return;
  for (const picture of pictures) {
    if (!visible(picture)) continue;
    if (picture.name === 'wipe') drawWipe(picture);
    else {
      const name = picture.name.endsWith('tissue') && state.held ? 'input' : picture.name;
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
  const across = (u) => (zoom.x + zoom.scale * u) * width;
  const down = (v) => (zoom.y + zoom.scale * v) * height;
  const line = (sides, colour, thickness) => {
    context.beginPath();
    for (let i = 0; i < sides.length; i += 4) {
      context.moveTo(across(sides[i]), down(sides[i + 1]));
      context.lineTo(across(sides[i + 2]), down(sides[i + 3]));
    }
    Object.assign(context, { strokeStyle: colour, lineWidth: thickness * scale, lineCap: 'round' });
    context.stroke();
  };
  const grips = (polygon, colour) => {
    context.fillStyle = colour;
    let [lastX, lastY] = [-Infinity, -Infinity]; // a traced outline has more corners than can be seen apart
    for (const [u, v] of polygon.map(([x, y]) => view.toPicture(x, y))) {
      const [x, y] = [across(u), down(v)];
      if (Math.hypot(x - lastX, y - lastY) < 2 * GRIP_PX * scale) continue;
      context.fillRect(x - 2.5 * scale, y - 2.5 * scale, 5 * scale, 5 * scale);
      [lastX, lastY] = [x, y];
    }
  };
  if (state.outlines && outlines) {
    for (const [role, sides] of Object.entries(outlines)) {
      line(sides, '#000a', 3);
      line(sides, REGION_COLOURS[role], 1.25);
    }
    for (const { role, polygon } of drawn.filter(holdsNow)) grips(polygon, REGION_COLOURS[role]);
  }
  if (state.marks && riskSides) {
    line(riskSides, '#000a', 3);
    line(riskSides, RISK_COLOUR, 1.5);
  }
  if (draft) {
    const corners = draft.map(([x, y]) => view.toPicture(x, y));
    line(corners.slice(1).flatMap((corner, k) => [...corners[k], ...corner]), '#ff5', 1.5);
    grips(draft, '#ff5');
  }
  if (name === 'wipe' && !state.held) line([state.wipe / 100, 0, state.wipe / 100, 1], '#fffc', 1.5);
  if (state.point) {
    const { u, v } = state.point;
    const [dx, dy] = [(9 * scale) / (width * zoom.scale), (9 * scale) / (height * zoom.scale)];
    line([u - dx, v, u - dx / 3, v, u + dx / 3, v, u + dx, v], '#ff5', 1.25);
    line([u, v - dy, u, v - dy / 3, u, v + dy / 3, u, v + dy], '#ff5', 1.25);
  }
}

function findOutlines() {
  const { regions } = current;
  outlines = regions && Object.fromEntries(
    Object.entries(ROLE_BITS).map(([role, bit]) => [role, outline(regions, bit, view)]));
}

// A place on a picture: shares of the picture, native coordinates, and the native pixel.
function pointOf(overlay, event) {
  const [atX, atY] = boxPlace(overlay, event);
  const [u, v] = [(atX - zoom.x) / zoom.scale, (atY - zoom.y) / zoom.scale];
  const [x, y] = view.toNative(u, v);
  const [column, row] = [Math.round(x), Math.round(y)];
  const inside = column >= 0 && row >= 0 && column < page.width && row < page.height;
  const { width, height } = overlay.getBoundingClientRect();
  return { u, v, x, y, column, row, inside, width: width * zoom.scale, height: height * zoom.scale };
}

function pressAt(name, overlay, event) {
  if (event.button) return;
  if (pressRegions(pointOf(overlay, event))) {
    if (grip) overlay.setPointerCapture(event.pointerId);
    return;
  }
  if (name === 'wipe') {
    overlay.setPointerCapture(event.pointerId);
    pointAt(name, overlay, event);
    return;
  }
  fingers.set(event.pointerId, boxPlace(overlay, event));
  if (zoom.scale > 1) overlay.setPointerCapture(event.pointerId);
}

function pointAt(name, overlay, event) {
  const point = pointOf(overlay, event);
  if (dragRegions(point)) return undefined;
  if (name === 'wipe' && event.buttons && !draft) {
    return setLevels({ wipe: clamp(Math.round(200 * point.u) / 2, 0, 100), point: null });
  }
  if (event.buttons) dragZoom(boxPlace(overlay, event), event.pointerId);
  state.point = point.inside ? point : null;
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
  if (page.against) parts.push(level('other_tissue'), difference('other_removed', 'other_removed'));
  return `column ${column}, row ${row}: ${parts.join(', ').replaceAll('other_', 'second result: ')} dB`;
}
