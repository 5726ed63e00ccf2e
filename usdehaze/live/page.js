"use strict";
// A picture that stands still must not look live: it fades once no newer frame has come for a second.
const OLD_S = 1;
const state = document.getElementById("state");

function say(text, old) {
  state.textContent = text;
  document.body.classList.toggle("old", old);
}

async function look() {
  try {
    const answer = await (await fetch("status")).json();
    const age = answer.age_s;
    const old = age === null || age > OLD_S;
    say(age === null ? "waiting for the first frame" : old ? `no new frame for ${age.toFixed(0)} s` : answer.line, old);
  } catch {
    say("the stream has ended", true);
  }
  setTimeout(look, 500);
}

// the stream never ends: begun any earlier, the page would never have loaded
window.addEventListener("load", () => {
  document.getElementById("picture").src = "stream";
  look();
});
