// The charts: lines with bands, dots with their spread, and what is drawn with them.
const swatch = (stroke, dash, shape) =>
  sv("svg", { viewBox: "0 0 22 10", "aria-hidden": true },
    shape === "area" ? sv("rect", { width: 22, height: 10, rx: 2, fill: stroke, stroke: "var(--soft)", "stroke-opacity": 0.5 }) : shape ? mark(shape, 11, 5, stroke) : sv("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke, "stroke-width": 3, "stroke-dasharray": dash }));
const legend = (entries) =>
  el("ul", { class: "legend" }, entries.map((entry) => el("li", {}, swatch(entry.color, entry.dash, entry.shape), entry.label)));
function mark(shape, x, y, paint, attributes = {}) {
  const r = 4.5;
  if (shape === "square") return sv("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, fill: paint, ...attributes });
  if (shape === "triangle") return sv("path", { d: `M${x} ${y - r - 1}L${x + r + 1} ${y + r}L${x - r - 1} ${y + r}Z`, fill: paint, ...attributes });
  if (shape === "diamond") return sv("path", { d: `M${x} ${y - r - 1.5}L${x + r + 1.5} ${y}L${x} ${y + r + 1.5}L${x - r - 1.5} ${y}Z`, fill: paint, ...attributes });
  return sv("circle", { cx: x, cy: y, r, fill: paint, ...attributes });
}

/** Lines with bands: series of {label, color, dash, points: [{x, middle, low, high}]}. */
function lines(width, { series, xLabel, yLabel, xTicks, yLow = 0, yHigh, format = tickLabel, cursor = null, points = true }) {
  const height = 270, left = 48, right = 14, top = 22, bottom = 38;
  const all = series.flatMap((each) => each.points);
  const xs = all.map((point) => point.x);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const high = yHigh ?? Math.max(...all.map((point) => point.high), 1e-9) * 1.06;
  const low = Math.min(yLow, ...all.map((point) => point.low));
  const x = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - right) + (x1 === x0 ? (width - left - right) / 2 : 0);
  const y = (value) => height - bottom - ((value - low) / (high - low || 1)) * (height - top - bottom);
  const board = sv("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${yLabel} against ${xLabel}` });
  for (const tick of ticks(low, high, 5)) {
    board.append(sv("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      sv("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, format(tick)));
  }
  for (const tick of xTicks || ticks(x0, x1, Math.max(3, Math.floor(width / 90))))
    board.append(sv("text", { x: x(tick), y: height - bottom + 18, "text-anchor": "middle" }, tickLabel(tick)));
  board.append(sv("text", { x: left, y: 12 }, yLabel),
    sv("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, xLabel),
    sv("line", { class: "axis", x1: left, x2: width - right, y1: y(Math.max(low, 0)), y2: y(Math.max(low, 0)) }));
  if (cursor !== null) board.append(sv("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: top, y2: height - bottom }));
  for (const each of series) {
    const band = each.points.map((point) => `${x(point.x)},${y(point.low)}`)
      .concat([...each.points].reverse().map((point) => `${x(point.x)},${y(point.high)}`)).join(" ");
    board.append(sv("polygon", { points: band, fill: each.color, opacity: 0.16 }));
  }
  for (const each of series) {
    board.append(sv("polyline", {
      points: each.points.map((point) => `${x(point.x)},${y(point.middle)}`).join(" "), fill: "none", stroke: each.color,
      "stroke-width": 2.4, "stroke-linejoin": "round", "stroke-dasharray": each.dash, "data-series": each.label,
    }));
    if (points) for (const point of each.points) board.append(sv("circle", { cx: x(point.x), cy: y(point.middle), r: 4, fill: each.color }));
  }
  // One strip for each place on the axis: its tip tells all series there, so that close ones need no aim.
  const places = unique(xs).sort((one, other) => one - other);
  const value = format === tickLabel ? show : percent;
  places.forEach((place, i) => {
    const from = i ? (x(places[i - 1]) + x(place)) / 2 : left - 14, to = i + 1 < places.length ? (x(places[i + 1]) + x(place)) / 2 : width;
    const tip = [`${xLabel} ${place}`, ...series.flatMap((each) => {
      const point = each.points.find((candidate) => candidate.x === place);
      return point ? [`${each.label}: ${value(point.middle)}${point.high > point.low ? ` (${value(point.low)} to ${value(point.high)})` : ""}`] : [];
    })].join("\n");
    board.append(sv("rect", { x: from, y: top, width: to - from, height: height - top - bottom, fill: "transparent", "data-tip": tip }));
  });
  return board;
}
const percentTick = (value) => `${Math.round(100 * value)} %`;

/** Dots with their seed spread on a horizontal axis: rows of {label, marks: [{color, shape, values, name}]}. */
function dots(width, { rows, label, bound = null, log = false, format = show }) {
  const step = 38, left = 124, right = 20, top = 10, bottom = 40;
  const height = top + bottom + rows.length * step;
  const all = rows.flatMap((row) => row.marks.flatMap((each) => each.values)).concat(bound === null ? [] : [bound]);
  let low = Math.min(...all), high = Math.max(...all);
  const tiny = 1e-3;
  const scale = log ? (value) => Math.log10(Math.max(value, tiny)) : (value) => value;
  if (log) { low = 10 ** Math.floor(Math.log10(Math.max(low, tiny))); high = 10 ** (Math.log10(high) + 0.06); }
  else { const pad = 0.08 * (high - low || 1); low = Math.max(low - pad, low >= 0 ? Math.min(0, low) : low - pad); high += pad; }
  const x = (value) => left + ((scale(value) - scale(low)) / (scale(high) - scale(low) || 1)) * (width - left - right);
  const board = sv("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const marks = log ? Array.from({ length: 9 }, (_, i) => 10 ** (i - 3)).filter((tick) => tick >= low * 0.999 && tick <= high) : ticks(low, high, 5);
  for (const tick of marks)
    board.append(sv("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: height - bottom }),
      sv("text", { x: x(tick), y: height - bottom + 18, "text-anchor": "middle" }, tickLabel(tick)));
  board.append(sv("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, label));
  rows.forEach((row, i) => {
    const y = top + step * (i + 0.5);
    board.append(sv("text", { x: left - 12, y: y + 4, "text-anchor": "end", style: "fill:var(--ink)" }, row.label));
    row.marks.forEach((each, j) => {
      const at = y + (j - (row.marks.length - 1) / 2) * 9;
      const [lowest, highest] = [Math.min(...each.values), Math.max(...each.values)];
      board.append(sv("line", { x1: x(lowest), x2: x(highest), y1: at, y2: at, stroke: each.color, "stroke-width": 7, "stroke-linecap": "round", opacity: 0.3 }),
        mark(each.shape || "circle", x(mean(each.values)), at, each.color, { "data-series": row.label }));
    });
    const tip = [row.label, ...row.marks.map((each) => `${each.name ? `${each.name}: ` : ""}${withSpread(each.values, format)}`)].join("\n");
    board.append(sv("rect", { x: 0, y: y - step / 2, width, height: step, fill: "transparent", "data-tip": tip }));
  });
  if (bound !== null) board.append(sv("line", { class: "bound", x1: x(bound), x2: x(bound), y1: top, y2: height - bottom + 4, "data-bound": bound }));
  return board;
}

function table(head, rows, classes = []) {
  return el("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Table" },
    el("table", {}, el("thead", {}, el("tr", {}, head.map((name, i) => el("th", { scope: "col", class: classes[i] }, name)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => {
        const made = cell !== null && typeof cell === "object" && !(cell instanceof Node) ? cell : { text: cell };
        return el("td", { class: [classes[i], made.class].filter(Boolean).join(" ") || null, "data-value": made.value }, made.text ?? "–");
      }))))));
}
const cell = (list, form = show, tone = null) =>
  list.length ? { text: withSpread(list, form), value: mean(list), class: tone } : { text: "–" };

function chart(id, title, subtitle, entries, draw, head, rows) {
  const old = $(id);
  const open = old ? old.querySelector("details").open : false;
  const width = Math.max(300, (old ? old.clientWidth : $("charts").clientWidth / (innerWidth > 760 ? 2 : 1)) - 34);
  const figure = el("figure", { class: "chart", id }, el("figcaption", {}, title, el("small", {}, subtitle)), legend(entries), draw(width),
    el("details", { open }, el("summary", {}, "Numbers"), table(head, rows)));
  if (old) old.replaceWith(figure); else $("charts").append(figure);
}

const across = ({ method, rule }, field) => {
  const { lams } = study().grid;
  return lams.map((lam) => ({ x: lam, list: values(method, field, { lam, rule }) })).filter((each) => each.list.length)
    .map(({ x, list }) => ({ x, list, middle: mean(list), low: Math.min(...list), high: Math.max(...list) }));
};

function drawCharts() {
  const methods = shownMethods();
  const { lams } = study().grid;
  const setting = words(state.lam, state.b);
  const named = (method) => ({ label: NAMES[method], color: color(method), dash: method === "prior" ? "5 4" : null });
  const seeds = study().grid.seeds.length;
  const spreadWords = seeds > 1 ? `band: the ${seeds} seeds` : "one seed";

  const block = study().training.block;
  const online = pick(study().exploration, { mode: "online", lam: state.lam, b: state.b }).filter((row) => row.regret);
  const curves = study().grid.methods.map((method) => {
    const rows = pick(online, { method, rule: ruleOf(method) });
    const length = rows.length ? Math.min(...rows.map((row) => row.regret.length)) : 0;
    return { ...named(method), method, points: Array.from({ length }, (_, i) => {
      const list = rows.map((row) => row.regret[i]);
      return { x: (i + 1) * block, middle: mean(list), low: Math.min(...list), high: Math.max(...list) };
    }) };
  }).filter((each) => each.points.length);
  if (curves.length)
    chart("chart-episodes", "Regret while exploring", `${setting}; means of ${block} episodes; ${spreadWords}`, curves,
      (width) => lines(width, { series: curves, xLabel: "episode", yLabel: "regret per episode", points: false }),
      ["episode", ...curves.map((each) => each.label)],
      curves[0].points.map((point, i) => [point.x, ...curves.map((each) => ({ text: show(each.points[i]?.middle), value: each.points[i]?.middle }))]));
  else $("chart-episodes")?.remove();

  const regrets = variants(methods.filter((method) => method !== "rl")).map((each) => ({ ...each, points: across(each, "regret") })).filter((each) => each.points.length);
  if (regrets.length)
    chart("chart-regret", "Regret after learning", `b = ${state.b}; ${spreadWords}; dotted: the chosen λ`, regrets,
      (width) => lines(width, { series: regrets, xLabel: "λ", yLabel: "regret on test episodes", xTicks: lams, cursor: state.lam }),
      ["λ", ...regrets.map((each) => each.label)],
      lams.map((lam) => [lam, ...regrets.map((each) => cell(values(each.method, "regret", { lam, rule: each.rule })))]));

  const broken = variants(methods).map((each) => ({ ...each, points: across(each, "violation_rate") }));
  const highest = Math.max(...broken.flatMap((each) => each.points.map((point) => point.high)));
  chart("chart-violations", "Episodes that break the promise", `b = ${state.b}; share of the test episodes; ${spreadWords}`, broken,
    (width) => lines(width, { series: broken, xLabel: "λ", yLabel: "violation rate", xTicks: lams, yHigh: Math.max(highest * 1.06, 0.01), format: highest < 0.05 ? (value) => percent(value) : percentTick, cursor: state.lam }),
    ["λ", ...broken.map((each) => each.label)],
    lams.map((lam) => [lam, ...broken.map((each) => cell(values(each.method, "violation_rate", { lam, rule: each.rule }), percent))]));

  const limit = pick(study().bounds, { lam: state.lam, b: state.b })[0];
  for (const [field, title, limitWords] of [["worst_cost", "Worst cost of an episode", "the largest bound"], ["cost", "Average cost of an episode", "the average bound"]]) {
    const rows = variants(methods).map((each) => ({ ...each, marks: [{ color: each.color, values: values(each.method, field, { rule: each.rule }) }] })).filter((row) => row.marks[0].values.length);
    chart(`chart-${field.replace("_", "-")}`, title, `${setting}; logarithmic; bar: the seeds`, [{ label: `${limitWords}: ${show(limit[field])}`, color: "var(--ink)", dash: "6 4" }],
      (width) => dots(width, { rows, label: "cost", bound: limit[field], log: true }),
      ["method", "cost", "bound"],
      rows.map((row) => [row.label, cell(row.marks[0].values), { text: show(limit[field]), value: limit[field] }]));
  }

  const rules = study().grid.rules;
  const byRule = study().grid.methods.filter((method) => GUARDED.has(method)).map((method) => ({
    method, label: NAMES[method],
    marks: rules.map((rule, i) => ({ name: rule, rule, color: RULE_COLORS[i % RULE_COLORS.length], shape: RULE_SHAPES[i % RULE_SHAPES.length], values: values(method, "reward", { rule }) })).filter((each) => each.values.length),
  })).filter((row) => row.marks.length);
  if (byRule.length)
    chart("chart-rules", "The certificates of the guard", `${setting}; reward on test episodes; the promise is the same`,
      rules.map((rule, i) => ({ label: rule, color: RULE_COLORS[i % RULE_COLORS.length], shape: RULE_SHAPES[i % RULE_SHAPES.length] })),
      (width) => dots(width, { rows: byRule.map((row) => ({ ...row })), label: "mean reward of an episode", low: null }),
      ["method", ...rules],
      byRule.map((row) => [row.label, ...rules.map((rule) => cell(values(row.method, "reward", { rule })))]));
  else $("chart-rules")?.remove();
}
