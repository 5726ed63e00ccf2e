// Frames of the page: each lies base64-coded in an element of its own and is unpacked when it is needed.

const KEPT_BYTES = 48e6; // of unpacked frames around the playhead
const kept = new Map(); // frame -> promise of its planes, the one used last at the end
const ready = new Map(); // frame -> planes, as far as they are unpacked

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const { writable, readable } = new DecompressionStream('deflate-raw');
  const writer = writable.getWriter();
  const written = writer.write(bytes).then(() => writer.close());
  const [unpacked] = await Promise.all([new Response(readable).arrayBuffer(), written]);
  return new Uint8Array(unpacked);
}

// In place: a pixel is its residual plus the mean of its left and its upper neighbour, modulo 256.
function addPrediction(plane, width, height) {
  for (let y = 0, i = 0; y < height; y++) {
    let left = 0;
    for (let x = 0; x < width; x++, i++) {
      const up = y ? plane[i - width] : 0;
      left = plane[i] = plane[i] + ((left + up) >> 1);
      left &= 255;
    }
  }
}

async function unpack(frame) {
  const element = document.getElementById('frame-' + frame);
  const bytes = await inflate(bytesOfBase64(element.textContent));
  const { width, height, planes } = page;
  const size = width * height;
  if (bytes.length !== size * planes.length) throw new Error('frame ' + frame + ' is damaged');
  const levels = {};
  planes.forEach((name, k) => {
    levels[name] = bytes.subarray(k * size, (k + 1) * size);
    addPrediction(levels[name], width, height);
  });
  for (const prefix of PREFIXES) {
    const [tissue, removed] = [new Uint8Array(size), levels[prefix + 'removed']];
    for (let i = 0; i < size; i++) tissue[i] = levels.input[i] - removed[i];
    levels[prefix + 'tissue'] = tissue;
  }
  return levels;
}

// The planes with the removal of either result scaled (strength, %), then made smaller by a multiple (keep) of its spread.
function scaled(levels, { strength, keep }) {
  const made = { ...levels };
  if (strength === 100 && keep === 0) return made;
  const { input } = levels;
  for (const prefix of PREFIXES) {
    const [before, std] = [levels[prefix + 'tissue'], levels[prefix + 'std']];
    const [tissue, removed] = [new Uint8Array(input.length), new Uint8Array(input.length)];
    for (let i = 0; i < input.length; i++) {
      const full = ((input[i] - before[i]) * strength) / 100;
      const less = std && full > 0 ? Math.max(0, full - keep * std[i]) : full;
      tissue[i] = input[i] - Math.round(less);
      removed[i] = input[i] - tissue[i];
    }
    Object.assign(made, { [prefix + 'tissue']: tissue, [prefix + 'removed']: removed });
  }
  return made;
}

// Promise of the planes of a frame; frames not used for long are forgotten.
function planesOf(frame) {
  let promise = kept.get(frame);
  if (promise) kept.delete(frame);
  else {
    promise = unpack(frame);
    promise.then((levels) => kept.has(frame) && ready.set(frame, levels), () => {});
  }
  kept.set(frame, promise);
  if (kept.size > Math.max(2 * AHEAD, KEPT_BYTES / (page.width * page.height * page.planes.length))) {
    const oldest = kept.keys().next().value;
    kept.delete(oldest);
    ready.delete(oldest);
  }
  return promise;
}
