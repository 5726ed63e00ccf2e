// What the page knows: its data, from the elements page-json and metrics-json, and the state of its controls.

const page = JSON.parse(document.getElementById('page-json').textContent);
const metrics = JSON.parse(document.getElementById('metrics-json').textContent);
const REGION_COLOURS = { tissue: '#40e060', haze: '#ffa020', faint: '#40c8ff' };
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const SPREAD_SHARE = 1 / 4; // spread is small beside what is removed: its colours end at a quarter of the dB
const PREFIXES = page.against ? ['', page.against.prefix] : ['']; // of the planes of either result
const HAZE_WHITE_DB = -10; // where the brightest haze is shown at first
const SCREEN_HZ = 60;
const AHEAD = 12; // frames unpacked before they are due

const view = makeView(400);
const state = {
  frame: 0, playing: false, speed: 1, loop: true, view: 'side', held: false, outlines: true, marks: true, allFrames: false,
  rangeDb: Math.round(page.dynamic_range_db), gainDb: 0, mapTopDb: 20, wipe: 50, point: null,
  hazeGainDb: 0, strength: 100, keep: 0,
};
const atFirst = { hazeGainDb: 0 }; // what only the first frame tells
const palettes = {};
const pictures = []; // {name, canvas, context, image, pixels, resample, overlay}
let unscaled = null; // planes of the frame that is shown, as the result has them
let current = null; // the same, with strength and what is kept as the sliders say
let outlines = null; // sides of each role's region, of the frame that is shown

