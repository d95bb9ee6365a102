"use strict";
const $ = id => document.getElementById(id);
const KEY = "tether-token";
const MANY = 6;                 // more plants than this start folded
const plants = new Map();       // name -> what the service last said of it
const cards = new Map();        // name -> its card
let token = handed() || sessionStorage.getItem(KEY) || "";
let me = { name: "", role: "", all: false };
let pending = null;             // what the dialog will do

// `tether demo` hands the token over behind the #, which no server sees; it is taken out of the address at once.
function handed() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return given;
}

// Small helpers: elements are made, never parsed, so that no name or reason can become markup.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "rect", "circle", "text", "title", "g"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1e5 ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}
const clock = at => new Date(at * 1000).toLocaleTimeString("en-GB");
const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

function setLink(text, kind) {
  $("link").textContent = text;
  $("link").className = `chip ${kind}`;
}

// The stream: server-sent events read by fetch, because EventSource cannot send a token except in the address.
async function listen() {
  let wait = 500;
  for (;;) {
    try {
      const answer = await fetch("v1/events", { headers: headers(), cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) return login(token ? "This token is not known here." : "");
      if (!answer.ok) throw new Error(`the service says ${answer.status}`);
      setLink("live", "good");
      wait = 500;
      await read(answer.body.getReader());
    } catch (error) { /* shown below: the service is away */ }
    setLink("no connection", "bad");
    await new Promise(done => setTimeout(done, wait));
    wait = Math.min(wait * 2, 5000);
  }
}
async function read(reader) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const data = text.slice(0, end).split("\n").filter(line => line.startsWith("data: ")).map(line => line.slice(6));
      text = text.slice(end + 2);
      if (data.length) take(JSON.parse(data.join("\n")));
    }
  }
}
function take(message) {
  if (message.me) { me = message.me; $("who").textContent = `${me.name}, ${me.role}`; }
  if (message.whole) plants.clear();
  for (const plant of message.plants) plants.set(plant.name, plant);
  show(message);
}
function login(text) {
  $("login").hidden = false;
  $("login-error").textContent = text;
  setLink("no token", "warn");
  $("token").focus();
}
$("login").addEventListener("submit", event => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem(KEY, token);
  $("token").value = "";
  $("login").hidden = true;
  setLink("connecting", "");
  listen();
});

// What is shown.
const interventions = plant => Object.entries(plant.reasons).reduce((sum, [reason, count]) => reason === "safe" ? sum : sum + count, 0);
function show(message) {
  const all = [...plants.values()];
  const total = what => all.reduce((sum, plant) => sum + what(plant), 0);
  const decisions = total(plant => plant.decisions), moved = total(interventions), breaches = total(plant => plant.breaches);
  $("tiles").replaceChildren(
    tile(all.length, all.length === 1 ? "plant" : "plants"),
    tile(total(plant => plant.open), "open episodes"),
    tile(decisions, "decisions"),
    tile(decisions ? `${number(100 * moved / decisions)} %` : "–", "of them changed by the guard"),
    tile(breaches, "breaches of assumptions", breaches ? "bad" : "good"),
    tile(message.lag === null ? "off" : `${number(message.lag * 1000)} ms`, "journal behind", message.lag > 1 ? "bad" : ""),
  );
  const stopped = all.filter(plant => plant.stopped).length;
  $("stop-all").hidden = !(me.role === "operator" && me.all) || !all.length || stopped === all.length;
  $("resume-all").hidden = !(me.role === "operator" && me.all) || stopped === 0;
  $("filter-line").hidden = all.length <= MANY;
  for (const name of [...cards.keys()]) if (!plants.has(name)) { cards.get(name).remove(); cards.delete(name); }
  for (const plant of all) draw(plant, all.length);
  filter();
  if (message.log) {
    $("log-section").hidden = message.log.length === 0;
    $("log").replaceChildren(...message.log.map(entry => make("li", {},
      make("time", {}, clock(entry.at)), make("b", {}, entry.plant || "all plants"), make("span", { class: entry.kind }, entry.text))));
  }
}
function tile(value, label, kind = "") {
  return make("div", { class: "card tile" }, make("strong", { class: kind }, typeof value === "number" ? number(value) : value), make("span", {}, label));
}
function filter() {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const [name, card] of cards) card.hidden = !name.toLowerCase().includes(wanted);
}
$("filter").addEventListener("input", filter);

function draw(plant, count) {
  let card = cards.get(plant.name);
  if (!card) {
    card = make("details", { class: "card plant", "data-plant": plant.name }, make("summary"), make("div", { class: "inside" }));
    card.open = count <= MANY;
    card.addEventListener("toggle", () => draw(plants.get(plant.name) || plant, count));
    cards.set(plant.name, card);
    const after = [...cards.keys()].sort().find(name => name > plant.name);
    $("plants").insertBefore(card, after ? cards.get(after) : null);
  }
  const episode = plant.episode, breached = episode && episode.breach;
  card.className = `card plant ${plant.stopped ? "stopped" : ""} ${breached ? "breached" : ""}`;
  const state = breached ? ["breach: the prior plays", "bad"] : plant.stopped ? ["prior now", "warn"] : episode ? ["learner under guard", "good"] : ["no episode yet", "soft"];
  const { lam, b, horizon } = plant.contract;
  card.firstChild.replaceChildren(
    make("span", { class: "name" }, plant.name),
    make("span", { class: "soft" }, `cost ≤ ${number(1 + lam)} × prior’s + ${number(b)} a round, ${number(horizon)} rounds`),
    make("span", { class: `chip state ${state[1]}` }, state[0]),
  );
  if (card.open) inside(card.lastChild, plant, episode);
}
function inside(place, plant, episode) {
  const parts = [];
  if (plant.stopped) parts.push(make("p", { class: "note" }, `Prior now, by ${plant.stopped.who}: ${plant.stopped.why}`));
  if (episode && episode.breach) parts.push(make("p", { class: "note bad" }, `Breach: ${episode.breach}. The promise is not certified from there on.`));
  const cost = episode ? episode.cost : null, bound = episode ? episode.bound : null;
  const facts = [
    ["episode", episode ? episode.name : "–"], ["round", episode ? episode.round : null],
    ["cost so far", cost], ["bound at least", bound], ["margin", bound === null ? null : bound - cost], ["decisions", plant.decisions],
    ...Object.entries(plant.reasons).filter(([reason]) => reason !== "safe"), ["breaches", plant.breaches], ["open episodes", plant.open],
  ];
  parts.push(make("dl", { class: "numbers" }, ...facts.map(([name, value]) =>
    make("div", { "data-fact": name }, make("dt", {}, name), make("dd", {}, typeof value === "string" ? value : number(value))))));
  if (episode && episode.rounds.length) parts.push(make("div", { class: "charts" }, costs(episode, plant.contract.horizon), sets(episode, plant.contract.horizon)));
  if (me.role === "operator") parts.push(make("div", { class: "row actions" }, ...buttons(plant, episode)));
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.do : null;
  const held = focused && place.contains(document.activeElement);
  place.replaceChildren(...parts);
  if (held) { const again = place.querySelector(`[data-do="${focused}"]`); if (again) again.focus(); }
}
function buttons(plant, episode) {
  const list = [];
  if (episode && !episode.over) list.push(button("quiet", "end", "End this episode", () => ask(
    `End episode ${episode.name}?`, `No further decision is made for it. Plant: ${plant.name}.`, "End the episode", "plain",
    `v1/plants/${encodeURIComponent(plant.name)}/episodes/${encodeURIComponent(episode.name)}/end`)));
  const path = `v1/plants/${encodeURIComponent(plant.name)}/`;
  if (plant.stopped) list.push(button("quiet", "resume", "Resume the learner", () => ask(
    `Resume ${plant.name}?`, "The learner’s proposals are played again, inside the safe set.", "Resume", "plain", path + "resume")));
  else list.push(button("stop", "stop", "Prior now", () => ask(
    `Prior now: ${plant.name}?`, "From the next decision on the trusted policy plays, until somebody resumes.", "Prior now", "stop", path + "prior-now")));
  return list;
}
function button(kind, name, text, click) {
  const made = make("button", { class: kind, type: "button", "data-do": name }, text);
  made.addEventListener("click", click);
  return made;
}

// Charts. Rounds from left to right; the last ones only.
const WIDTH = 520, HEIGHT = 190, LEFT = 46, RIGHT = 10, TOP = 10, BOTTOM = 24;
const SHOWN = 48;               // as many rounds as the service keeps to be looked at
function frame(rounds, horizon, low, high, label) {
  const first = rounds[0].round, last = Math.max(rounds[rounds.length - 1].round, Math.min(horizon, first + SHOWN - 1));
  const step = (WIDTH - LEFT - RIGHT) / (last - first + 1);
  const x = round => LEFT + (round - first + .5) * step;
  const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low || 1));
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const value of ticks(low, high)) svg.append(
    make("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    make("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  const every = Math.max(1, Math.ceil((last - first + 1) / 12));
  for (let round = first; round <= last; round += every) svg.append(make("text", { x: x(round), y: HEIGHT - 8, "text-anchor": "middle" }, String(round)));
  return { svg, x, y, step };
}
function ticks(low, high) {
  const rough = (high - low || 1) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(each => each * power).find(each => each >= rough);
  const list = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) list.push(Number(value.toPrecision(12)));
  return list;
}
const path = points => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
function costs(episode, horizon) {
  const rounds = episode.rounds, known = rounds.filter(each => each.cost !== null);
  const bounds = known.filter(each => each.bound !== null);
  const high = Math.max(1e-9, ...known.map(each => each.cost), ...bounds.map(each => each.bound));
  const low = Math.min(0, ...known.map(each => each.cost));
  const { svg, x, y } = frame(rounds, horizon, low, high * 1.04, "Cost so far, and the least that the bound can be, round by round");
  const line = (list, value, color, dash) => list.length && svg.append(
    make("path", { d: path(list.map(each => [x(each.round), y(value(each))])), fill: "none", stroke: color, "stroke-width": 2.2, "stroke-dasharray": dash, "stroke-linejoin": "round" }));
  line(bounds, each => each.bound, "var(--bound)", "6 4");
  line(known, each => each.cost, "var(--accent)", "none");
  const tip = known[known.length - 1];
  if (tip) svg.append(make("circle", { cx: x(tip.round), cy: y(tip.cost), r: 3.5, fill: "var(--accent)" }));
  return make("figure", { "data-chart": "cost" }, make("h3", {}, "Cost so far against the bound"), svg, make("figcaption", {},
    make("span", { class: "key", style: "--mark: var(--accent)" }, "cost so far"),
    make("span", { class: "key", style: "--mark: var(--bound)" }, "what the bound is at least")));
}
function sets(episode, horizon) {
  const rounds = episode.rounds, signed = rounds.some(each => each.moved < 0 || each.wished < 0);
  const most = Math.max(0, ...rounds.map(each => Math.max(each.radius, Math.abs(each.moved))));
  const wished = Math.max(0, ...rounds.map(each => Math.abs(each.wished || 0)));
  const shown = 1.1 * Math.max(most, most > 0 ? Math.min(wished, 2 * most) : wished) || 1;   // a proposal farther away stands at the edge
  const { svg, x, y, step } = frame(rounds, horizon, signed ? -shown : 0, shown, "Safe set, proposal and decision, as distance from the prior’s action");
  for (const each of rounds) {
    const about = `round ${each.round}: ${each.reason}; moved ${number(each.moved)} of ${number(each.radius)}, wished ${number(each.wished)}`;
    const wide = Math.max(2, step * .7), end = (Math.sign(each.wished || each.moved) || 1) * each.radius;
    svg.append(make("rect", { x: x(each.round) - wide / 2, y: y(Math.max(end, 0)), width: wide, height: Math.max(1, y(Math.min(end, 0)) - y(Math.max(end, 0))), fill: "var(--band)" }, make("title", {}, about)));
  }
  svg.append(make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0), stroke: "var(--soft)", "stroke-width": 1.2 }));
  for (const each of rounds) {
    if (each.wished !== null && each.intervened) {
      const wish = y(Math.max(-shown, Math.min(shown, each.wished))), at = x(each.round), size = Math.min(4, step * .3);
      svg.append(make("path", { d: `M${at - size} ${wish - size}L${at + size} ${wish + size}M${at - size} ${wish + size}L${at + size} ${wish - size}`, stroke: "var(--wish)", "stroke-width": 1.6 }));
    }
    svg.append(make("circle", { cx: x(each.round), cy: y(each.moved), r: Math.min(4, Math.max(1.8, step * .28)), fill: each.reason === "safe" ? "var(--good)" : each.reason === "breach" ? "var(--bad)" : "var(--bound)" }));
  }
  return make("figure", { "data-chart": "set" }, make("h3", {}, "Safe set and decision, from the prior’s action"), svg, make("figcaption", {},
    make("span", { class: "key box", style: "--mark: var(--band)" }, "safe, towards the proposal"),
    make("span", { class: "key dot", style: "--mark: var(--good)" }, "played as proposed"),
    make("span", { class: "key dot", style: "--mark: var(--bound)" }, "changed"),
    make("span", { class: "key cross", style: "--mark: var(--wish)" }, "proposal")));
}

// The operator's decisions: always with a reason, always asked twice.
function ask(title, text, yes, kind, path) {
  pending = path;
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = yes;
  $("confirm-yes").className = kind;
  $("confirm-error").textContent = "";
  $("why").value = "";
  $("confirm").showModal();
  $("why").focus();
}
$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm").querySelector("form").addEventListener("submit", async event => {
  event.preventDefault();
  const why = $("why").value.trim();
  if (!why) { $("confirm-error").textContent = "A reason is needed."; return; }
  $("confirm-yes").disabled = true;
  try {
    const answer = await fetch(pending, { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify({ why }) });
    if (answer.ok) $("confirm").close();
    else $("confirm-error").textContent = (await answer.json()).error || `The service says ${answer.status}.`;
  } catch (error) {
    $("confirm-error").textContent = "The service did not answer. Nothing is known to have changed; stop the plant by other means if it matters.";
  }
  $("confirm-yes").disabled = false;
});
$("stop-all").addEventListener("click", () => ask("Prior now: all plants?", "From the next decision on the trusted policy plays on every plant, until somebody resumes.", "Prior now for all", "stop", "v1/prior-now"));
$("resume-all").addEventListener("click", () => ask("Resume all plants?", "The learners’ proposals are played again, inside their safe sets.", "Resume all", "plain", "v1/resume"));
listen();
