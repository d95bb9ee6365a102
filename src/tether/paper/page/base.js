// What all parts of the page use: the data, what is chosen, and small helpers.
const DATA = JSON.parse(document.getElementById("data").textContent);
const NAMES = Object.fromEntries(DATA.methods.map(({ name, title }) => [name, title]));
const GUARDED = new Set(DATA.methods.filter((method) => method.guarded).map((method) => method.name));
const RULE_SHAPES = ["circle", "square", "triangle", "diamond"];
const RULE_COLORS = ["var(--rl)", "var(--crl)", "var(--rl-acd)", "var(--acrl)"];
const MEMORY = new Set(DATA.methods.filter((method) => method.memory).map((method) => method.name));
const DASHES = ["1 4", "3 3", "7 3", "10 2"];
const state = { study: 0, lam: 0, b: 0, rule: "", mode: "", method: "", episode: 0, round: 1, playing: false };
let timer = null;

const $ = (id) => document.getElementById(id);
const color = (method) => `var(--${method.replace("+", "-")})`;
const SVG = "http://www.w3.org/2000/svg";
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-")) node.setAttribute(key, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const sv = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const study = () => DATA.results[state.study];
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const spread = (values) => {
  const middle = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - middle) ** 2)));
};
const show = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : 2).replace("-", "−");
};
const percent = (value) => (value === null ? "–" : value === 0 ? "0 %" : value < 0.001 ? "< 0.1 %" : `${(100 * value).toFixed(1)} %`);
const withSpread = (values, form = show) =>
  spread(values) > 0 ? `${form(mean(values))} ± ${form(spread(values))}` : form(values[0]);
const words = (lam, b) => `λ\u00a0=\u00a0${lam}, b\u00a0=\u00a0${b}`;
const same = (row, wanted) => Object.entries(wanted).every(([key, value]) => row[key] === value);
const pick = (rows, wanted) => rows.filter((row) => same(row, wanted));
const unique = (values) => [...new Set(values)];

/** The rule under which a method's results are shown: the chosen one, or null where the method has no guard. */
const ruleOf = (method) => (GUARDED.has(method) ? state.rule : null);
const scoresOf = (method, wanted = {}) =>
  pick(study().scores, { mode: state.mode, method, rule: ruleOf(method), ...wanted });
const values = (method, field, wanted = {}) =>
  scoresOf(method, { lam: state.lam, b: state.b, ...wanted }).map((row) => row[field]).filter((value) => value !== null);
/** What a chart shows: every method, and the one that learns with the guard once for each certificate it was trained with. */
const variants = (methods) => methods.flatMap((method) => {
  const rules = MEMORY.has(method) ? study().grid.rules.filter((rule) => scoresOf(method, { rule }).length) : [];
  if (rules.length < 2) return [{ method, rule: ruleOf(method), label: NAMES[method], color: color(method), dash: method === "prior" ? "5 4" : null }];
  return rules.map((rule) => ({ method, rule, label: `${NAMES[method]}, ${rule}`, color: color(method), dash: rule === state.rule ? null : DASHES[study().grid.rules.indexOf(rule) % DASHES.length] }));
});
const shownMethods = () => study().grid.methods.filter((method) => scoresOf(method).length);

function ticks(low, high, count) {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => raw / power <= factor) || 10);
  const made = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * span; tick += step) made.push(Number(tick.toPrecision(12)));
  return made;
}
const tickLabel = (value) => (Math.abs(value) >= 1000 ? `${Number((value / 1000).toPrecision(3))}k` : `${value}`).replace("-", "−");
