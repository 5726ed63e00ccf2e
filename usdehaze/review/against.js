// A second result of the same source beside the first.

const SHORT = ['preset', 'strength', 'caution', 'seed', 'guidance', 'steps']; // settings that a caption can name

// What tells the two apart in few words: [first, second].
function namesOfResults() {
  const told = page.against.differences.filter(([label]) => SHORT.includes(label)).slice(0, 2);
  const side = (k) => told.map((row) => `${row[0]} ${row[k]}`).join(', ');
  return told.length ? [side(1), side(2)] : ['first result', 'second result'];
}

function showAgainst() {
  for (const id of ['view-two', 'against', 'live-second']) byId(id).hidden = !page.against;
  if (!page.against) return;
  addPicture('other_tissue', 'Tissue estimate of the second result');
  addPicture('other_removed', 'What the second result removed, in dB, as a colour map');
  const [first, second] = namesOfResults();
  for (const [name, text] of [['tissue', first], ['removed', first], ['other_tissue', second], ['other_removed', second]]) {
    byId(`figure-${name}`).querySelector('.which').textContent = text;
  }
  const rows = page.against.differences.map(([label, ...values]) => make('tr', {},
    make('th', { scope: 'row', textContent: label }), ...values.map((textContent) => make('td', { textContent }))));
  byId('differences').tBodies[0].replaceChildren(...rows);
  byId('against-file').textContent = `Second result file, SHA-256: ${page.against.sha256}`;
}
