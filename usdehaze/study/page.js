"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const SIDES = ["left", "right"];
const [low, high] = data.scale;
const marks = [...Array(high - low + 1).keys()].map((i) => String(low + i)).concat("-");
const memory = `usdehaze-study ${data.study} ${data.reader}`;
let answers = {};
let at = 0, frame = 0, timer = null, pictures = null, since = performance.now();

try {
  answers = JSON.parse(localStorage.getItem(memory)) ?? {};
} catch { /* a browser that keeps nothing: answers live as long as the page */ }

const pair = () => data.pairs[at];
const answer = () => (answers[pair().pair] ??= { choice: null, ratings: { left: {}, right: {} }, seconds: 0 });

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function radio(name, value, label) {
  const made = element("input", { type: "radio", name, value });
  made.setAttribute("aria-label", label);
  return made;
}

function buildQuestions() {
  const heads = SIDES.flatMap((side) => marks.map((mark, i) => element("th", { scope: "col", className: i ? "" : "gap" }, mark)));
  const sides = SIDES.map((side) => element("th", { colSpan: marks.length, className: "gap" }, side));
  const rows = Object.entries(data.items).map(([item, question]) => {
    const cells = SIDES.flatMap((side) => marks.map((mark, i) =>
      element("td", { className: i ? "" : "gap" }, radio(`${side} ${item}`, mark, `${question} ${side}: ${mark}`))));
    const row = element("tr", {}, element("th", { scope: "row" }, question), ...cells);
    row.dataset.item = item;
    return row;
  });
  const head = element("thead", {}, element("tr", {}, element("td"), ...sides), element("tr", {}, element("td"), ...heads));
  const choice = element("fieldset", { id: "choice" }, element("legend", {}, data.choice));
  for (const side of SIDES) choice.append(element("label", {}, radio("choice", side, `${data.choice} ${side}`), ` ${side} `));
  by("questions").append(element("table", {}, head, element("tbody", {}, ...rows)), choice);
}

function showAnswers() {
  const { choice, ratings } = answer();
  for (const input of by("questions").elements) {
    if (input.type !== "radio") continue;
    const [side, item] = input.name.split(" ");
    const given = input.name === "choice" ? choice : ratings[side][item];
    input.checked = given !== undefined && input.value === (given === null ? (item ? "-" : "") : String(given));
  }
  showMissing();
}

function missing({ choice, ratings }) {
  const open = Object.keys(data.items).filter((item) => SIDES.some((side) => ratings[side][item] === undefined));
  return choice === null ? [...open, "choice"] : open;
}

function showMissing() {
  const open = missing(answer());
  for (const row of document.querySelectorAll("tr[data-item]")) row.classList.toggle("open", open.includes(row.dataset.item));
  by("choice").classList.toggle("open", open.includes("choice"));
  by("missing").textContent = open.length ? `${open.length} still open on this page` : "";
  by("next").disabled = open.length > 0 || at === data.pairs.length - 1;
  by("back").disabled = at === 0;
  const done = data.pairs.filter(({ pair }) => answers[pair] && !missing(answers[pair]).length).length;
  by("where").textContent = `pair ${at + 1} of ${data.pairs.length} (${pair().pair}), ${done} complete`;
}

function keep() {
  const now = performance.now();
  answer().seconds += (now - since) / 1000;
  since = now;
  try {
    localStorage.setItem(memory, JSON.stringify(answers));
  } catch { /* see above */ }
}

function draw() {
  if (!pictures) return;
  for (const side of SIDES) {
    const picture = pictures[side][frame], canvas = by(side), stretch = Math.sqrt(pair().row_per_column);
    const [width, height] = [Math.round(picture.width / stretch), Math.round(picture.height * stretch)]; // square pixels
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    canvas.getContext("2d").drawImage(picture, 0, 0, width, height);
  }
  by("frame").value = frame + 1;
  by("shown").textContent = `${frame + 1} of ${pictures.left.length}`;
  document.body.dataset.shown = `${pair().pair} ${frame}`;
}

function play(on) {
  clearInterval(timer);
  timer = on ? setInterval(() => { if (pictures) { frame = (frame + 1) % pictures.left.length; draw(); } }, 1000 * pair().frame_time_s) : null;
  by("play").textContent = on ? "Pause" : "Play";
}

async function show(index) {
  at = index;
  frame = 0;
  pictures = null;
  const decode = (packed) => {
    const picture = new Image();
    picture.src = `data:image/png;base64,${packed}`;
    return picture.decode().then(() => picture);
  };
  const shown = pair();
  showAnswers();
  const [left, right] = await Promise.all(SIDES.map((side) => Promise.all(shown[side].map(decode))));
  if (pair() !== shown) return;
  pictures = { left, right };
  by("frame").max = left.length;
  draw();
  play(left.length > 1);
  since = performance.now();
}

function save() {
  keep();
  const given = data.pairs.filter(({ pair }) => answers[pair]?.choice).map(({ pair }) => ({ pair, ...answers[pair] }));
  const file = { format: "usdehaze-study-answers", format_version: 1, study: data.study, reader: data.reader, answers: given };
  const link = element("a", { download: `answers-${data.reader}.json` });
  link.href = URL.createObjectURL(new Blob([JSON.stringify(file, null, 1)], { type: "application/json" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

by("questions").addEventListener("change", ({ target }) => {
  const [side, item] = target.name.split(" ");
  if (target.name === "choice") answer().choice = target.value;
  else answer().ratings[side][item] = target.value === "-" ? null : Number(target.value);
  keep();
  showMissing();
});
by("play").addEventListener("click", () => play(!timer));
by("frame").addEventListener("input", ({ target }) => { play(false); frame = target.value - 1; draw(); });
by("back").addEventListener("click", () => { keep(); show(at - 1); });
by("next").addEventListener("click", () => { keep(); show(at + 1); });
by("save").addEventListener("click", save);
buildQuestions();
show(0);
