// Zoom of the pictures, all alike: the place u of a picture is drawn at x + scale * u, in shares of its box.

const MAX_ZOOM = 16;
const zoom = { scale: 1, x: 0, y: 0 };
const fingers = new Map(); // pointer -> its place in the box

function setZoom(scale, x, y) {
  zoom.scale = clamp(scale, 1, MAX_ZOOM);
  zoom.x = clamp(x, 1 - zoom.scale, 0);
  zoom.y = clamp(y, 1 - zoom.scale, 0);
  const transform = `translate(${100 * zoom.x}%, ${100 * zoom.y}%) scale(${zoom.scale})`;
  for (const { canvas } of pictures) canvas.style.transform = transform;
  document.body.classList.toggle('zoomed', zoom.scale > 1);
  byId('zoom-says').textContent = `${number(zoom.scale, 1)} ×`;
  drawOverlays();
}

// Zooms by a factor; what lies at the place (shares of the box) stays there.
function zoomAt([u, v], factor) {
  const scale = clamp(zoom.scale * factor, 1, MAX_ZOOM);
  const ratio = scale / zoom.scale;
  setZoom(scale, u - ratio * (u - zoom.x), v - ratio * (v - zoom.y));
}

const resetZoom = () => setZoom(1, 0, 0);

function boxPlace(overlay, event) {
  const box = overlay.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

const distance = ([[u0, v0], [u1, v1]]) => Math.hypot(u1 - u0, v1 - v0);
const middle = ([[u0, v0], [u1, v1]]) => [(u0 + u1) / 2, (v0 + v1) / 2];

// Moves the pictures with one pointer and pinches them with two.
function dragZoom(place, pointerId) {
  const last = fingers.get(pointerId);
  if (!last) return;
  const before = [...fingers.values()];
  fingers.set(pointerId, place);
  const after = [...fingers.values()];
  if (after.length === 2) zoomAt(middle(after), distance(after) / Math.max(distance(before), 1e-3));
  const share = 1 / after.length;
  setZoom(zoom.scale, zoom.x + share * (place[0] - last[0]), zoom.y + share * (place[1] - last[1]));
}

function listenToZoom(overlay) {
  overlay.addEventListener('wheel', (event) => {
    if (event.deltaY > 0 && zoom.scale === 1) return; // the page scrolls on
    event.preventDefault();
    zoomAt(boxPlace(overlay, event), 2 ** (-event.deltaY / 400));
  }, { passive: false });
  overlay.addEventListener('dblclick', (event) => {
    if (draft) return;
    if (zoom.scale > 1) resetZoom();
    else zoomAt(boxPlace(overlay, event), 3);
  });
}
