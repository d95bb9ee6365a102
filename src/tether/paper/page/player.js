// One episode, round by round: what is visible, what is played and what it costs.
const LOOKS = [
  { color: "var(--series)", dots: "1 4", dash: "2 3" }, { color: "var(--area)", shape: "area" },
  { color: "var(--crl)", dash: "8 3" }, { color: "var(--random-acd)", dash: null },
];
/** Entry k of each round of a curve; a system with one action has numbers instead of lists. */
const entry = (list, k) => list.map((value) => (Array.isArray(value) ? value[k] : value));
const named = (series) => series.replaceAll("_", " ");
const ICONS = { play: "M8 5v14l11-7z", pause: "M7 5h4v14H7zM13 5h4v14h-4z", back: "M6 5h2v14H6zM20 5v14l-10-7z", next: "M16 5h2v14h-2zM4 5v14l10-7z" };
const icon = (name) => sv("svg", { viewBox: "0 0 24 24", "aria-hidden": true }, sv("path", { d: ICONS[name] }));
const tracksHere = () => pick(study().tracks, { lam: state.lam, b: state.b });
function currentTrack() {
  const here = tracksHere();
  const methods = unique(here.map((track) => track.method));
  if (!methods.includes(state.method)) state.method = methods.includes("acrl") ? "acrl" : methods[0] || "";
  return pick(here, { method: state.method, episode: state.episode })[0];
}
function go(round) {
  const last = study().data.horizon;
  state.round = Math.min(Math.max(round, 1), last);
  if (state.round === last) play(false);
  drawPlayer();
}
function play(on) {
  clearInterval(timer);
  state.playing = on;
  if (on) {
    if (state.round >= study().data.horizon) state.round = 1;
    timer = setInterval(() => go(state.round + 1), 650);
  }
}
function buildPlayer() {
  const select = (id, label, options, act) => el("label", { class: "control" }, el("b", {}, label), el("select", { id, onchange: (event) => { act(event.target.value); drawPlayer(); } }, options.map(([value, text]) => el("option", { value }, text))));
  const track = currentTrack();
  if (!track) { $("player").replaceChildren("No episodes were kept for this setting."); return; }
  const methods = unique(tracksHere().map((each) => each.method));
  const button = (id, name, label, act, main) => el("button", { type: "button", id, class: main ? "main" : null, "aria-label": label, title: label, onclick: act }, icon(name));
  $("player").replaceChildren(
    el("div", { class: "player-controls" },
      select("player-method", "policy", methods.map((method) => [method, `${NAMES[method]}, ${GUARDED.has(method) ? `rule ${pick(tracksHere(), { method })[0].rule}` : "no guard"}`]), (value) => { state.method = value; }),
      select("player-episode", "test episode", study().episodes.map((_, i) => [i, `${i}`]), (value) => { state.episode = Number(value); })),
    el("div", { class: "player-controls" },
      el("span", { class: "buttons" }, button("back", "back", "One round back", () => { play(false); go(state.round - 1); }),
        button("play", "play", "Play", () => { play(!state.playing); drawPlayer(); }, true),
        button("next", "next", "One round on", () => { play(false); go(state.round + 1); })),
      el("input", { type: "range", id: "round", min: 1, max: study().data.horizon, value: state.round, "aria-label": "Round", oninput: (event) => { play(false); go(Number(event.target.value)); } })),
    el("div", { id: "player-boards" }), el("p", { class: "readout", id: "readout" }));
  $("player-method").value = state.method;
  $("player-episode").value = state.episode;
}
function drawPlayer() {
  const track = currentTrack();
  if (!track || !$("player-boards")) { buildPlayer(); if (!track) return; }
  const episode = study().episodes[state.episode];
  const rounds = study().data.horizon, h = state.round, i = h - 1;
  const width = Math.max(290, $("player").clientWidth - 34);
  const left = 44, right = 12;
  const x = (round) => left + ((round - 0.5) / rounds) * (width - left - right);
  const guarded = Boolean(track.low);
  const space = (width - left - right) / rounds;
  function board(height, [low, high], label, draw) {
    const top = 20, bottom = 24;
    const y = (value) => height - bottom - ((Math.min(Math.max(value, low), high) - low) / (high - low)) * (height - top - bottom);
    const made = sv("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    for (const tick of ticks(low, high, 4)) made.append(sv("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }), sv("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, tickLabel(tick)));
    for (let round = 1; round <= rounds; round += 1) if (round === 1 || round % (width < 500 ? 6 : 3) === 0) made.append(sv("text", { x: x(round), y: height - 6, "text-anchor": "middle" }, `${round}`));
    made.append(sv("text", { x: left, y: 12 }, label));
    made.append(sv("rect", { x: x(h) - space / 2, y: top, width: space, height: height - top - bottom, fill: "var(--line)", opacity: 0.55 }));
    draw(made, y);
    return made;
  }
  const line = (list, y, attributes) => {
    const path = (from, to) => list.slice(from, to).map((value, k) => `${x(from + k + 1)},${y(value)}`).join(" ");
    return [sv("polyline", { points: path(0, h), fill: "none", "stroke-width": 2.2, "stroke-linejoin": "round", ...attributes }),
      sv("polyline", { points: path(h - 1, rounds), fill: "none", "stroke-width": 2.2, ...attributes, opacity: 0.22 })];
  };
  const steps = (list, y) => list.flatMap((value, k) => [`${x(k + 1) - space / 2},${y(value)}`, `${x(k + 1) + space / 2},${y(value)}`]);
  const area = (list, y, paint) => sv("polygon", { points: [`${x(1) - space / 2},${y(0)}`, ...steps(list, y), `${x(rounds) + space / 2},${y(0)}`].join(" "), fill: paint });

  /** One board of `results.boards`: an entry of the action with the series on its axis, or series alone. */
  function seriesBoard({ label, action, series }) {
    const looks = series.map((name, k) => ({ name, label: named(name), list: episode[name], ...LOOKS[(k + (action === null ? LOOKS.length - 2 : 0)) % LOOKS.length] }));
    const own = (list) => entry(list, action);
    const drawn = [...looks.map((each) => each.list), ...(action === null ? [] : [own(track.action), own(track.prior_action)])].flat();
    const low = Math.min(0, ...drawn), span = Math.max(...drawn) - low || 1;
    const range = [low < 0 ? low - 0.06 * span : 0, low + 1.12 * span];
    const height = action === null ? (width < 500 ? 130 : 140) : (width < 500 ? 230 : 260);
    const made = board(height, range, action === null ? label : `${label} in each round`, (svg, y) => {
      for (const each of looks) if (each.shape === "area") svg.append(area(each.list, y, each.color));
      if (action !== null && guarded) svg.append(sv("polygon", { "data-band": true, points: [...steps(own(track.low).slice(0, h), y), ...steps(own(track.high).slice(0, h), y).reverse()].join(" "), fill: "var(--band)", stroke: color("acrl"), "stroke-opacity": 0.5 }));
      for (const each of looks) if (each.shape !== "area") svg.append(...line(each.list, y, { stroke: each.color, "stroke-dasharray": each.dots || each.dash, "stroke-linecap": each.dots ? "round" : null }));
      if (action === null) return;
      svg.append(...line(own(track.prior_action), y, { stroke: color("prior"), "stroke-dasharray": "5 4" }), ...line(own(track.action), y, { stroke: color(track.method) }));
      const proposal = own(track.proposal)[i];
      if (guarded && proposal <= range[1] && proposal >= range[0]) svg.append(sv("circle", { cx: x(h), cy: y(proposal), r: 5.5, fill: "none", stroke: "var(--rl)", "stroke-width": 2 }));
      svg.append(sv("circle", { cx: x(h), cy: y(own(track.action)[i]), r: 5, fill: color(track.method) }));
    });
    const entries = action === null ? [] : [{ label: `${who} plays`, color: color(track.method) }, ...(guarded ? [{ label: "its proposal", color: "var(--rl)", shape: "circle" }, { label: "safe", color: "var(--band)", shape: "area" }] : []),
      { label: "prior", color: color("prior"), dash: "5 4" }];
    return [legend([...entries, ...looks]), made];
  }

  const who = NAMES[track.method];
  const boards = study().boards;
  const ceiling = Math.max(...track.bound) * 1.12;
  const costs = board(width < 500 ? 180 : 200, [0, ceiling], "cost so far", (made, y) => {
    made.append(...line(track.bound, y, { class: "bound" }), ...line(episode.prior_cost, y, { stroke: color("prior"), "stroke-dasharray": "5 4" }), ...line(track.cost, y, { stroke: color(track.method) }),
      sv("circle", { cx: x(h), cy: y(track.cost[i]), r: 5, fill: color(track.method) }));
  });
  $("player-boards").replaceChildren(...boards.flatMap(seriesBoard),
    legend([{ label: `cost of ${who}`, color: color(track.method) }, { label: "bound", color: "var(--ink)", dash: "6 4" }, { label: "prior's cost", color: color("prior"), dash: "5 4" }]), costs);
  $("player-note").textContent = Array.isArray(track.action[0])
    ? "Of several actions it is that of each one if the others are the prior's; a proposal outside of what is allowed together is moved back."
    : "A proposal outside it is moved to its edge.";

  const seen = unique(boards.flatMap((each) => each.series)).map((name) => `${named(name)} ${show(episode[name][i])}`).join(", ");
  const numbers = (value) => (Array.isArray(value) ? `(${value.map(show).join(", ")})` : show(value));
  const interval = (low, high) => (Array.isArray(low) ? `(${low.map((value, k) => `${show(value)} to ${show(high[k])}`).join(", ")})` : `${show(low)} to ${show(high)}`);
  const hour = episode.start_hour === null ? "" : `, ${String((episode.start_hour + i) % 24).padStart(2, "0")}:00`;
  const [proposed, played] = [[track.proposal[i]].flat(), [track.action[i]].flat()];
  const moved = guarded && played.some((value, k) => Math.abs(proposed[k] - value) > 1e-3 * Math.max(1, Math.abs(value)));
  const firstBreach = track.cost.findIndex((cost, k) => cost > track.bound[k] * (1 + 1e-4));
  const safe = guarded ? `safe is ${interval(track.low[i], track.high[i])}; ` : "";
  const outcome = moved ? `${who} proposed ${numbers(track.proposal[i])}, so the guard played ${numbers(track.action[i])}.` : `${who} played ${numbers(track.action[i])}.`;
  const kept = firstBreach >= 0 && firstBreach <= i ? el("strong", { class: "bad" }, `The promise is broken since round ${firstBreach + 1}.`) : el("span", { class: "good" }, "The promise holds.");
  $("readout").replaceChildren(el("b", {}, `Round ${h} of ${rounds}${hour}. `), seen ? `${seen[0].toUpperCase()}${seen.slice(1)}. ` : "",
    `The prior would play ${numbers(track.prior_action[i])}; ${safe}${outcome} Cost so far `,
    el("b", { id: "cost-now", "data-value": track.cost[i] }, show(track.cost[i])), " of at most ", el("b", { id: "bound-now", "data-value": track.bound[i] }, show(track.bound[i])), ". ", kept);
  $("round").value = h;
  $("play").replaceChildren(icon(state.playing ? "pause" : "play"));
  $("play").setAttribute("aria-label", state.playing ? "Pause" : "Play");
  $("play").title = state.playing ? "Pause" : "Play";
}
$("player").addEventListener("keydown", (event) => {
  if (["SELECT", "INPUT"].includes(event.target.tagName)) return;
  if (event.key === " " && event.target.tagName !== "BUTTON") { play(!state.playing); drawPlayer(); }
  else if (event.key === "ArrowRight") { play(false); go(state.round + 1); }
  else if (event.key === "ArrowLeft") { play(false); go(state.round - 1); }
  else if (event.key === "Home") { play(false); go(1); }
  else if (event.key === "End") { play(false); go(study().data.horizon); }
  else return;
  event.preventDefault();
});
