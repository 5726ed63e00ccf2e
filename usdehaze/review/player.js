// The player: which frame is shown, and when.

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
  const before = current && current.regions;
  unscaled = planes;
  current = scaled(planes, state);
  current.regions = regionsNow(planes);
  draw();
  const [hadMarks] = [riskSides, followRisk()];
  const moved = !before || !current.regions || current.regions.some((value, i) => value !== before[i]) || drawn.length;
  if (moved) findOutlines();
  if (moved || hadMarks || riskSides) drawOverlays();
  showReadout();
  if (!state.playing) showFrameFigures();
  document.body.dataset.shown = frame;
  prefetch();
}

// What follows the frame shown, but for the pictures; it waits while the cine plays.
function showFrameFigures() {
  if (!state.allFrames) showHistograms(histogramsOf(current));
  showLiveFigures();
  showDrawn();
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
  const time = page.frame_time_known ? `, ${number(page.frame_times_s[state.frame], 2)} s` : '';
  byId('seek').value = state.frame;
  const ofSource = page.first_frame ? ` (${sourceFrame() + 1} in the source)` : '';
  const text = `frame ${state.frame + 1} of ${page.n_frames}${ofSource}${time}`;
  byId('frame-says').textContent = text;
  byId('seek').setAttribute('aria-valuetext', text);
}

// Frames to go on at a time: 1, unless so many frames a second are asked for that no screen shows each of them.
const stride = () => Math.max(1, Math.ceil(state.speed / page.frame_time_s / SCREEN_HZ - 0.01));

// Unpacks the frames that come next.
function prefetch() {
  const step = state.playing ? stride() : 1;
  for (let k = 1; k <= Math.min(AHEAD, page.n_frames - 1); k++) {
    planesOf((state.frame + k * step) % page.n_frames).catch(() => {}); // told when its turn comes
  }
}

// Shows the next frame when it is due and unpacked. A machine that cannot keep up plays slower and skips nothing.
let dueAt = 0; // ms, when the next frame is due
let counted = { since: 0, frames: 0 };
function tick(now) {
  if (!state.playing) return;
  requestAnimationFrame(tick);
  showRate(now);
  if (now < dueAt) return;
  const step = stride();
  const next = state.frame + step;
  if (next >= page.n_frames && !state.loop) {
    show(page.n_frames - 1);
    return pause();
  }
  if (!ready.has(next % page.n_frames)) return void planesOf(next % page.n_frames).catch(complain);
  const period = (1000 * page.frame_time_s * step) / state.speed;
  dueAt = Math.max(dueAt + period, now);
  counted.frames += step;
  show(next % page.n_frames);
}

// How fast the cine really runs, once a second.
function showRate(now) {
  const seconds = (now - counted.since) / 1000;
  if (seconds < 1) return;
  byId('rate').textContent = `${number(counted.frames / seconds, 0)} frames/s`;
  counted = { since: now, frames: 0 };
}

function play() {
  if (page.n_frames < 2 || state.playing) return;
  if (state.frame === page.n_frames - 1 && !state.loop) show(0);
  state.playing = true;
  dueAt = performance.now() + 1000 * page.frame_time_s / state.speed;
  counted = { since: performance.now(), frames: 0 };
  requestAnimationFrame(tick);
  showPlaying();
}

function pause() {
  state.playing = false;
  byId('rate').textContent = '';
  showPlaying();
  if (current) showFrameFigures();
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
