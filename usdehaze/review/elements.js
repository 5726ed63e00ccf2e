// Small help with elements and numbers.

const SVG = 'http://www.w3.org/2000/svg';

const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function makeSvg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// A number as it is printed: a true minus, no minus before zero, a dash where there is no value.
function number(value, digits, signed = false) {
  if (value === null || value === undefined) return '–';
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? '−' : signed ? '+' : '') + text;
}

const percent = (share) => (share === null ? '–' : number(100 * share, 1) + ' %');
