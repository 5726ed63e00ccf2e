// Structure at risk: outlines of the marks, and the list of the frames that have them.

const RISK_COLOUR = '#ff4fd8';
const RISK_WORDS = { removed: 'taken away', samples: 'samples disagree', frames: 'unlike the frame before' };
const ANY_REASON = 7;
let riskSides = null; // outlines of the marks in the frame that is shown

const reasonsOf = (frame) => page.risk.marks[frame][0];
const inWords = (bits) => page.risk.reasons.filter((_, bit) => bits & (1 << bit)).map((name) => RISK_WORDS[name]).join(', ');

// Runs of frames with marks: {first, last, worst, reasons}; the worst has most of its pixels marked.
function riskRuns() {
  const runs = [];
  page.risk.marks.forEach(([reasons, pixels], frame) => {
    if (!reasons) return;
    const run = runs.at(-1);
    if (!run || run.last !== frame - 1) return void runs.push({ first: frame, last: frame, worst: frame, reasons });
    run.last = frame;
    run.reasons |= reasons;
    if (pixels > page.risk.marks[run.worst][1]) run.worst = frame;
  });
  return runs;
}

function showRisk() {
  const runs = riskRuns();
  const marked = page.risk.marks.filter(([reasons]) => reasons).length;
  byId('risk-count').textContent = marked
    ? `Structure at risk in ${marked} of ${page.n_frames} frames, look at:` : 'No structure at risk was found.';
  byId('risk-list').replaceChildren(...runs.map(({ first, last, worst, reasons }) => {
    const name = first === last ? `${first + 1}` : `${first + 1}–${last + 1}`;
    const button = make('button', {
      type: 'button', textContent: name,
      ariaLabel: `Frame${first === last ? '' : 's'} ${name}: ${inWords(reasons)}`,
      title: `${inWords(reasons)}${first === last ? '' : `; most of it in frame ${worst + 1}`}`,
    });
    Object.assign(button.dataset, { first, last });
    button.addEventListener('click', () => { pause(); show(worst); });
    return button;
  }));
  for (const id of ['marks', 'risk-key', 'risk-list', 'risk-here']) byId(id).hidden = !marked;
  if (page.n_frames < 2) return;
  for (const { first, last } of runs) {
    byId('trace').append(makeSvg('rect', { x: first - 0.4, width: last - first + 0.8, y: 92, height: 8 }));
  }
}

// Outlines and words of the frame shown.
function followRisk() {
  riskSides = reasonsOf(state.frame) ? outline(current.risk, ANY_REASON, view) : null;
  const reasons = reasonsOf(state.frame);
  byId('risk-here').textContent = `Frame ${state.frame + 1}: ${reasons ? inWords(reasons) : 'no mark'}.`;
  for (const button of byId('risk-list').children) {
    const here = state.frame >= +button.dataset.first && state.frame <= +button.dataset.last;
    button.setAttribute('aria-pressed', here);
  }
}

function setMarks(shown) {
  state.marks = shown;
  byId('marks').setAttribute('aria-pressed', shown);
  drawOverlays();
}

// The next frame with marks, or the one before (-1), round the ends.
function goRisk(by) {
  const { n_frames } = page;
  for (let k = 1; k <= n_frames; k++) {
    const frame = (state.frame + by * k + n_frames * k) % n_frames;
    if (!reasonsOf(frame)) continue;
    pause();
    return show(frame);
  }
  return undefined;
}
