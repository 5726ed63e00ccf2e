// Drawing, moving and listing regions; import, export and, where the page is served, saving.

const GRIP_PX = 8;
let draft = null; // corners of the polygon that is being drawn
let grip = null; // {region, corner} that is being dragged

function regionsChanged() {
  state.allFrames = false;
  showDrawn();
  followRegions();
}

// What hangs on the regions of the frame shown: outlines, histograms, figures.
function followRegions() {
  if (!current) return;
  current.regions = regionsNow(unscaled);
  findOutlines();
  drawOverlays();
  if (!state.playing) showFrameFigures();
}

function setDrawing(on) {
  draft = on ? [] : null;
  byId('draw').setAttribute('aria-pressed', on);
  document.body.classList.toggle('drawing', on);
  sayRegions(on ? 'Click corners on a picture; Enter or a click on the first corner closes, Backspace takes one back, '
    + 'Escape gives up.' : '');
  drawOverlays();
}

function sayRegions(text) {
  byId('regions-say').textContent = text;
}

function addCorner(point) {
  const first = draft[0];
  if (draft.length >= 3 && near(first, point)) return closeDraft();
  if (draft.length && near(draft.at(-1), point)) return undefined;
  draft.push([clamp(point.x, -0.5, page.width - 0.5), clamp(point.y, -0.5, page.height - 0.5)]);
  return drawOverlays();
}

function closeDraft() {
  if (!draft || draft.length < 3) return;
  const role = byId('draw-role').value;
  const frames = byId('draw-frames').value === 'all' ? null : [sourceFrame()];
  drawn.push({ name: `${role} ${drawn.length + 1}`, role, frames, polygon: draft });
  setDrawing(false);
  regionsChanged();
}

const near = ([x, y], point) => {
  const [u, v] = view.toPicture(x, y);
  return Math.hypot((u - point.u) * point.width, (v - point.v) * point.height) < GRIP_PX;
};

// The drawn corner under the pointer, the newest region first.
function gripAt(point) {
  for (const region of drawn.filter(holdsNow).reverse()) {
    const corner = region.polygon.findIndex((each) => near(each, point));
    if (corner >= 0) return { region, corner };
  }
  return null;
}

// Returns whether the pointer's press was the editor's.
function pressRegions(point) {
  if (draft) {
    if (point.inside) addCorner(point);
    return true;
  }
  grip = state.outlines ? gripAt(point) : null;
  return grip !== null;
}

function dragRegions(point) {
  if (!grip || !point.inside) return grip !== null;
  grip.region.polygon[grip.corner] = [clamp(point.x, -0.5, page.width - 0.5), clamp(point.y, -0.5, page.height - 0.5)];
  followRegions();
  return true;
}

function releaseRegions() {
  if (grip) regionsChanged();
  grip = null;
}

const DRAFT_KEYS = {
  Enter: closeDraft,
  Escape: () => setDrawing(false),
  Backspace: () => { draft.pop(); drawOverlays(); },
};

// Regions of the frame shown can be edited; those of other frames are counted, and one click away.
function showDrawn() {
  byId('region-list').replaceChildren(...drawn.filter(holdsNow).map(regionItem));
  showOtherFrames();
  byId('outlines').hidden = page.regions === null && !drawn.length;
  byId('outlines').textContent = automatic() ? 'Automatic regions' : 'Regions';
  byId('export').disabled = !drawn.length;
  byId('save').disabled = !drawn.length;
}

function showOtherFrames() {
  const elsewhere = drawn.filter((region) => !holdsNow(region));
  const frames = [...new Set(elsewhere.flatMap((region) => region.frames))].sort((a, b) => a - b);
  const box = byId('other-frames');
  box.hidden = !elsewhere.length;
  box.querySelector('summary').textContent = `${elsewhere.length} more region${elsewhere.length === 1 ? '' : 's'} in `
    + (frames.length === 1 ? `frame ${frames[0] + 1}` : `${frames.length} other frames`);
  box.querySelector('.jumps').replaceChildren(...(box.open ? frames : []).map((frame) => {
    const jump = make('button', { type: 'button', textContent: frame + 1, ariaLabel: `Frame ${frame + 1} of the source` });
    const place = frame - page.first_frame;
    jump.disabled = place < 0 || place >= page.n_frames;
    jump.addEventListener('click', () => { pause(); show(place); });
    return jump;
  }));
}

function regionItem(region, index) {
  const say = (what) => `${what} of region ${index + 1}`;
  const name = make('input', { type: 'text', value: region.name, maxLength: 60, ariaLabel: say('Name') });
  name.addEventListener('change', () => { region.name = name.value; });
  const role = make('select', { ariaLabel: say('Role') },
    ...Object.keys(ROLE_BITS).map((each) => make('option', { value: each, textContent: each })));
  role.value = region.role;
  role.addEventListener('change', () => { region.role = role.value; regionsChanged(); });
  const frames = make('select', { ariaLabel: say('Frames') },
    make('option', { value: 'all', textContent: 'all frames' }),
    make('option', { value: 'some', textContent: region.frames ? framesInWords(region.frames) : 'the frame shown' }));
  frames.value = region.frames ? 'some' : 'all';
  frames.addEventListener('change', () => {
    region.frames = frames.value === 'all' ? null : [sourceFrame()];
    regionsChanged();
  });
  const remove = make('button', { type: 'button', textContent: 'Remove', ariaLabel: say('Removal') });
  remove.addEventListener('click', () => { drawn.splice(drawn.indexOf(region), 1); regionsChanged(); });
  const swatch = make('span', { className: 'swatch' });
  swatch.style.borderColor = REGION_COLOURS[region.role];
  return make('li', {}, swatch, name, role, frames, remove);
}

// Frames are counted from 1 for people.
const framesInWords = (frames) => (frames.length === 1 ? `frame ${frames[0] + 1}` : `${frames.length} frames`);

async function importRegions(file) {
  try {
    drawn.splice(0, drawn.length, ...parseRegions(await file.text()));
    sayRegions(`${drawn.length} region${drawn.length === 1 ? '' : 's'} imported.`);
  } catch (error) {
    sayRegions(error.message);
  }
  regionsChanged();
}

function exportRegions() {
  const blob = new Blob([JSON.stringify(regionsDocument(), null, 1) + '\n'], { type: 'application/json' });
  const link = make('a', { href: URL.createObjectURL(blob), download: 'rois.json' });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function saveRegions() {
  try {
    const answer = await fetch('regions', { method: 'POST', body: JSON.stringify(regionsDocument()) });
    sayRegions(await answer.text());
  } catch {
    sayRegions('Not saved: usdehaze review --serve has ended. Export the regions instead.');
  }
}

function listenToRegions() {
  byId('draw').addEventListener('click', () => setDrawing(!draft));
  byId('import').addEventListener('click', () => byId('import-file').click());
  byId('import-file').addEventListener('change', ({ target }) => {
    if (target.files.length) importRegions(target.files[0]);
    target.value = '';
  });
  byId('export').addEventListener('click', exportRegions);
  byId('save').addEventListener('click', saveRegions);
  byId('save').hidden = !page.served;
  byId('other-frames').addEventListener('toggle', showOtherFrames);
}
