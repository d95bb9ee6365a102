"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const NAMES = {
    prior: "prior", "random+acd": "Random+ACD", rl: "RL", "rl+acd": "RL+ACD", crl: "CRL", acrl: "ACRL",
  };
  const SYSTEMS = { carbon: "Carbon-aware scheduling", inference: "Sustainable inference" };
  const GUARDED = new Set(["random+acd", "rl+acd", "acrl"]);
  const RULE_SHAPES = ["circle", "square", "diamond"];
  const state = { study: 0, lam: 0, b: 0, rule: "", mode: "", method: "", episode: 0, round: 1, playing: false };
  let timer = null;

  // ---- small helpers -------------------------------------------------------------------------------------------
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

  // ---- charts ----------------------------------------------------------------------------------------------------
  const swatch = (stroke, dash, shape) =>
    sv("svg", { viewBox: "0 0 22 10", "aria-hidden": true },
      shape === "area" ? sv("rect", { width: 22, height: 10, rx: 2, fill: stroke, stroke: "var(--soft)", "stroke-opacity": 0.5 }) : shape ? mark(shape, 11, 5, stroke) : sv("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke, "stroke-width": 3, "stroke-dasharray": dash }));
  const legend = (entries) =>
    el("ul", { class: "legend" }, entries.map((entry) => el("li", {}, swatch(entry.color, entry.dash, entry.shape), entry.label)));
  function mark(shape, x, y, paint, attributes = {}) {
    const r = 4.5;
    if (shape === "square") return sv("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, fill: paint, ...attributes });
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
    const step = 38, left = 110, right = 20, top = 10, bottom = 40;
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

  const across = (method, field) => {
    const { lams } = study().grid;
    return lams.map((lam) => ({ x: lam, list: values(method, field, { lam }) })).filter((each) => each.list.length)
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

    const regrets = methods.filter((method) => method !== "rl").map((method) => ({ ...named(method), method, points: across(method, "regret") })).filter((each) => each.points.length);
    if (regrets.length)
      chart("chart-regret", "Regret after learning", `b = ${state.b}; ${spreadWords}; dotted: the chosen λ`, regrets,
        (width) => lines(width, { series: regrets, xLabel: "λ", yLabel: "regret on test episodes", xTicks: lams, cursor: state.lam }),
        ["λ", ...regrets.map((each) => each.label)],
        lams.map((lam) => [lam, ...regrets.map((each) => cell(values(each.method, "regret", { lam })))]));

    const broken = methods.map((method) => ({ ...named(method), method, points: across(method, "violation_rate") }));
    const highest = Math.max(...broken.flatMap((each) => each.points.map((point) => point.high)));
    chart("chart-violations", "Episodes that break the promise", `b = ${state.b}; share of the test episodes; ${spreadWords}`, broken,
      (width) => lines(width, { series: broken, xLabel: "λ", yLabel: "violation rate", xTicks: lams, yHigh: Math.max(highest * 1.06, 0.01), format: highest < 0.05 ? (value) => percent(value) : percentTick, cursor: state.lam }),
      ["λ", ...broken.map((each) => each.label)],
      lams.map((lam) => [lam, ...broken.map((each) => cell(values(each.method, "violation_rate", { lam }), percent))]));

    const limit = pick(study().bounds, { lam: state.lam, b: state.b })[0];
    for (const [field, title, limitWords] of [["worst_cost", "Worst cost of an episode", "the largest bound"], ["cost", "Average cost of an episode", "the average bound"]]) {
      const rows = methods.map((method) => ({ label: NAMES[method], marks: [{ color: color(method), values: values(method, field) }] })).filter((row) => row.marks[0].values.length);
      chart(`chart-${field.replace("_", "-")}`, title, `${setting}; logarithmic; bar: the seeds`, [{ label: `${limitWords}: ${show(limit[field])}`, color: "var(--ink)", dash: "6 4" }],
        (width) => dots(width, { rows, label: "cost", bound: limit[field], log: true }),
        ["method", "cost", "bound"],
        methods.map((method) => [NAMES[method], cell(values(method, field)), { text: show(limit[field]), value: limit[field] }]));
    }

    const rules = study().grid.rules;
    const byRule = study().grid.methods.filter((method) => GUARDED.has(method)).map((method) => ({
      method, label: NAMES[method],
      marks: rules.map((rule, i) => ({ name: `rule ${rule}`, rule, color: ["var(--rl)", "var(--crl)", "var(--acrl)"][i % 3], shape: RULE_SHAPES[i % 3], values: values(method, "reward", { rule }) })).filter((each) => each.values.length),
    })).filter((row) => row.marks.length);
    if (byRule.length)
      chart("chart-rules", "The three rules of the guard", `${setting}; reward on test episodes; same promise, same knowledge`,
        rules.map((rule, i) => ({ label: rule, color: ["var(--rl)", "var(--crl)", "var(--acrl)"][i % 3], shape: RULE_SHAPES[i % 3] })),
        (width) => dots(width, { rows: byRule.map((row) => ({ ...row })), label: "mean reward of an episode", low: null }),
        ["method", ...rules],
        byRule.map((row) => [row.label, ...rules.map((rule) => cell(values(row.method, "reward", { rule })))]));
    else $("chart-rules")?.remove();
  }

  // ---- words -----------------------------------------------------------------------------------------------------
  function drawSummary() {
    const results = study();
    const tests = results.data.test_episodes;
    const guarded = results.scores.filter((row) => GUARDED.has(row.method));
    const played = guarded.length * tests;
    const brokenTests = Math.round(guarded.reduce((sum, row) => sum + row.violation_rate * tests, 0));
    const exploring = results.exploration.filter((row) => GUARDED.has(row.method));
    const explored = exploring.reduce((sum, row) => sum + row.episodes, 0);
    const brokenExploring = Math.round(exploring.reduce((sum, row) => sum + row.violation_rate * row.episodes, 0));
    const [rl, acrl] = [values("rl", "reward"), values("acrl", "reward")];
    const free = values("rl", "violation_rate");
    const share = rl.length && acrl.length ? (mean(acrl) - results.prior.reward) / (mean(rl) - results.prior.reward) : null;
    const setting = words(state.lam, state.b);

    const greedy = pick(results.guard.rows, { learner: "greedy" });
    const loose = pick(greedy, { guard: "none" })[0], tied = greedy.filter((row) => row.guard !== "none");
    const worstTied = Math.max(...tied.map((row) => Math.max(...row.violation_rates)));
    const verdict = brokenTests + brokenExploring === 0
      ? `No guarded policy broke it: not in ${played.toLocaleString("en")} test episodes, not in ${explored.toLocaleString("en")} episodes of learning.`
      : `Guarded policies broke it in ${brokenTests} of ${played.toLocaleString("en")} test episodes and ${brokenExploring} of ${explored.toLocaleString("en")} episodes of learning. That must not happen: please report it.`;
    const worth = free.length
      ? `The promise is not empty: RL without the guard breaks it in ${percent(mean(free))} of the test episodes at ${setting}, and a greedy learner in ${percent(mean(loose.violation_rates))} of them (with the guard: ${percent(worstTied)}).`
      : `The promise is not empty: a greedy learner without the guard breaks it in ${percent(mean(loose.violation_rates))} of the episodes (with the guard: ${percent(worstTied)}).`;
    const price = share === null ? null
      : `The price at ${setting}: the trusted policy earns ${show(results.prior.reward)} an episode, RL that ignores the cost ${show(mean(rl))}, and ACRL, which keeps the promise, ${show(mean(acrl))}. That is ${Math.round(100 * share)} % of the way.`;
    const size = results.scale === "quick" ? "This was the quick run: a smaller grid, fewer seeds and less training than in the paper. Its command with --full --recipe paper is the paper's evaluation."
      : results.training.recipe !== "paper" ? "The grid, the seeds and the number of episodes are the paper's; how the learners were trained is ours. With --recipe paper that is the paper's, too." : null;
    $("summary").replaceChildren(...[verdict, worth, price, size].filter(Boolean).map((text) => el("p", {}, text)));

    const tile = (id, value, label, tone, raw) => el("div", { class: "tile" }, el("strong", { class: tone, id, "data-value": raw }, value), el("span", {}, label));
    const tiles = [
      tile("tile-tests", `${brokenTests.toLocaleString("en")}`, `of ${played.toLocaleString("en")} guarded test episodes break the promise`, brokenTests ? "bad" : "good", brokenTests),
      tile("tile-exploring", `${brokenExploring.toLocaleString("en")}`, `of ${explored.toLocaleString("en")} guarded episodes of learning break it`, brokenExploring ? "bad" : "good", brokenExploring),
    ];
    if (free.length) tiles.push(tile("tile-free", percent(mean(free)), `of the test episodes break it under RL without the guard (${setting})`, mean(free) > 0 ? "bad" : null, mean(free)));
    if (share !== null) tiles.push(tile("tile-share", `${Math.round(100 * share)} %`, `of RL's gain over the trusted policy is kept by ACRL (${setting})`, null, share));
    $("tiles").replaceChildren(...tiles);
    const absent = results.grid.methods.filter((method) => !scoresOf(method).length).map((method) => NAMES[method]);
    $("regret-note").textContent = "Regret is the reward that RL, which ignores the cost, earns more on the same episodes after all its training. Lower is better, and only methods that keep the promise may run the plant."
      + (absent.length ? ` Not in this run, learned ${state.mode} with rule ${state.rule}: ${absent.join(", ")}.` : "");
  }

  function drawTables() {
    const results = study();
    const { lams, bs } = results.grid;
    const modes = results.grid.modes.length > 1;
    const order = ([mode, method, rule]) => [results.grid.modes.indexOf(mode), results.grid.methods.indexOf(method), results.grid.rules.indexOf(rule)].reduce((sum, place) => 100 * sum + place, 0);
    const groups = (rows) => unique(rows.map((row) => JSON.stringify([row.mode, row.method, row.rule]))).map((key) => JSON.parse(key)).sort((one, other) => order(one) - order(other));
    const rows = [];
    for (const [mode, method, rule] of groups(results.scores))
      for (const b of bs) for (const lam of lams) {
        const mine = pick(results.scores, { mode, method, rule, lam, b });
        const list = (field) => mine.map((row) => row[field]).filter((value) => value !== null);
        if (mine.length) rows.push([NAMES[method], ...(modes ? [mode] : []), rule || "–", lam, b, cell(list("reward")), cell(list("regret")), cell(list("cost")), cell(list("worst_cost")), cell(list("violation_rate"), percent, Math.max(...list("violation_rate")) > 0 ? "bad" : "good")]);
      }
    $("scores").replaceChildren(table(["method", ...(modes ? ["learned"] : []), "rule", "λ", "b", "reward", "regret", "mean cost", "worst cost", "violations"], rows));

    const learning = [];
    for (const [mode, method, rule] of groups(results.exploration)) {
      const mine = pick(results.exploration, { mode, method, rule });
      const rates = mine.map((row) => row.violation_rate);
      const lost = mine.map((row) => row.mean_regret).filter((value) => value !== undefined);
      learning.push([NAMES[method], mode, rule || "–", mine.reduce((sum, row) => sum + row.episodes, 0).toLocaleString("en"), { text: percent(mean(rates)), value: mean(rates), class: Math.max(...rates) > 0 ? "bad" : "good" }, lost.length ? { text: show(mean(lost)), value: mean(lost) } : "–"]);
    }
    $("exploration").replaceChildren(table(["method", "learned", "rule", "episodes", "violations", "mean regret"], learning));

    const { guard } = results;
    $("guard-note").textContent = `A learner that plays at random, and a greedy one that takes the best reward of each round and never looks ahead, on ${guard.episodes.toLocaleString("en")} episodes a seed, with no guard and with each of its three rules (${words(guard.lam, guard.b)}).`;
    $("guard").replaceChildren(table(["learner", "guard", "reward", "mean cost", "worst cost", "violations", "largest cost / bound"],
      guard.rows.map((row) => [row.learner, row.learner === "prior" ? "–" : row.guard, cell(row.rewards), cell(row.costs), { text: show(row.worst_cost), value: row.worst_cost }, cell(row.violation_rates, percent, Math.max(...row.violation_rates) > 0 ? "bad" : "good"), { text: row.largest_share.toFixed(3), value: row.largest_share }])));

    const claims = DATA.claims.filter((row) => row.system === results.system);
    const said = (verdict) => claims.filter((row) => row.verdict === verdict).length;
    const shown = [["authors", "here, authors' data"], ["embedded", "here, embedded data"]].filter(([key]) => claims.some((row) => row[key] !== null));
    $("claims-section").hidden = claims.length === 0;
    $("claims-note").textContent = `${claims.length} claims of the paper's evaluation that these results say something about: ${said("reproduced")} reproduced, ${said("differs")} different, ${said("not reproducible")} not reproducible from the paper. A printed number counts as reproduced within 2 %, a reward within 5 % of the gain over the prior; scores are those after exploration, mean ± standard deviation over the seeds.`;
    const judged = table(["claim", "verdict", "paper", ...shown.map(([, name]) => name)],
      claims.map((row) => [`${row.where}: ${row.claim}`, { text: row.verdict, class: row.verdict === "reproduced" ? "good" : null }, row.paper, ...shown.map(([key]) => row[key])]), ["wrap", "text", "text", ...shown.map(() => "wrap text")]);
    [...judged.querySelectorAll("tbody tr")].forEach((row, i) => {
      if (claims[i].why) row.after(el("tr", { class: "why" }, el("td", { colspan: shown.length + 3 }, el("div", {}, claims[i].why))));
    });
    $("claims").replaceChildren(judged);

    const averages = DATA.averages[state.study];
    $("averages-section").hidden = averages.length === 0;
    $("averages-note").textContent = `CRL bounds the average cost of an episode, not each episode: on the test episodes its average is met in ${averages.filter((row) => row.verdict === "met").length} of ${averages.length} settings, while single episodes break the promise (see the violations below).`;
    $("averages").replaceChildren(table(["learned", "λ", "b", "average cost", "bound", "seeds that keep it", "average"],
      averages.map((row) => [row.mode, row.lam, row.b, cell(row.costs), { text: show(row.bound), value: row.bound }, `${row.kept} of ${row.costs.length}`, { text: row.verdict, class: row.verdict === "met" ? "good" : "bad" }])));

    const compared = DATA.comparison.filter((row) => row.system === results.system);
    $("comparison-section").hidden = compared.length === 0;
    $("comparison-note").textContent = compared.some((row) => row.paper !== null)
      ? "What the paper prints, what comes out here on the authors' data, and on the data that the project generates."
      : "The paper's numbers are not part of the project: --paper DIR puts them beside these, and --data DIR runs on the authors' data.";
    const threefold = (value) => (value === null ? "–" : { text: value.text, value: value.value });
    const columns = [["paper", "paper"], ["authors", "here, authors' data"], ["embedded", "here, embedded data"]].filter(([key]) => compared.some((row) => row[key] !== null));
    const made = table(["quantity", ...columns.map(([, name]) => name)],
      compared.map((row) => [row.quantity.replace("lam =", "λ =").replace("lam and", "λ and"), ...columns.map(([key]) => threefold(row[key]))]), ["wrap"]);
    // The reason stands once, under the last of the rows that it is for.
    [...made.querySelectorAll("tbody tr")].forEach((row, i) => {
      if (compared[i].why !== compared[i + 1]?.why)
        row.after(el("tr", { class: "why" }, el("td", { colspan: columns.length + 1 }, el("div", {}, compared[i].why))));
    });
    $("comparison").replaceChildren(made);

    $("additions").replaceChildren(...DATA.sections.map((section) => el("section", {}, el("h2", {}, section.title), el("p", { class: "note" }, section.text),
      section.image ? el("figure", {}, el("img", { src: `data:image/svg+xml,${encodeURIComponent(section.image)}`, alt: section.image_text }), el("figcaption", { class: "note" }, section.image_text)) : null,
      table(section.columns, section.rows.map((row) => row.map((value) => (typeof value === "number" ? { text: show(value), value } : value)))))));

    const { provenance, data, grid, training } = results;
    const facts = [
      ["seeds", grid.seeds.join(", ")],
      ["data", `${data.origin}: ${data.train_episodes.toLocaleString("en")} episodes to learn from, ${data.test_episodes.toLocaleString("en")} to test on, ${data.horizon} rounds each; sha256 ${data.sha256.slice(0, 16)}…`],
      ["learning", `recipe ${training.recipe}: Adam at ${training.learning_rate} (${training.schedule}), two layers of ${training.width}, ${training.batch} episodes a gradient step; offline ${training.passes} passes over the data; online ${training.explored.toLocaleString("en")} episodes, an update every ${training.batch} of them with ${training.steps} gradient steps`],
      ["versions", Object.entries(provenance.versions).map(([name, version]) => `${name} ${version}`).join(", ") + `, Python ${provenance.python}`],
      ["machine", provenance.platform],
    ];
    $("made").replaceChildren(el("p", { class: "note" }, "Made by this command, on the results in results.json beside this page. Figures for print are in the folder figures."),
      el("pre", {}, provenance.command), el("dl", {}, facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])));
  }

  // ---- controls --------------------------------------------------------------------------------------------------
  function segments(name, label, options, chosen, act) {
    return el("div", { class: "control" }, el("b", { id: `${name}-label` }, label),
      el("span", { class: "segments", role: "radiogroup", "aria-labelledby": `${name}-label` }, options.map((option) => el("span", {},
        el("input", { type: "radio", name, id: `${name}-${option}`, value: option, checked: option === chosen, onchange: () => act(option) }),
        el("label", { for: `${name}-${option}` }, `${option}`)))));
  }
  function drawControls() {
    const { lams, bs, rules, modes } = study().grid;
    const parts = [];
    const output = el("output", { for: "lam", id: "lam-value" }, `${state.lam}`);
    if (lams.length > 1) parts.push(el("div", { class: "control" }, el("b", {}, el("label", { for: "lam" }, "λ")),
      el("input", { type: "range", id: "lam", min: 0, max: lams.length - 1, step: 1, value: lams.indexOf(state.lam), "aria-valuetext": `${state.lam}`,
        oninput: (event) => { state.lam = lams[event.target.value]; output.textContent = state.lam; event.target.setAttribute("aria-valuetext", state.lam); refresh(); } }), output));
    else parts.push(el("div", { class: "control" }, el("b", {}, "λ"), output));
    parts.push(segments("b", "b", bs, state.b, (b) => { state.b = b; refresh(); }));
    if (rules.length > 1) parts.push(segments("rule", "rule", rules, state.rule, (rule) => { state.rule = rule; refresh(); }));
    if (modes.length > 1) parts.push(segments("mode", "learned", modes, state.mode, (mode) => { state.mode = mode; refresh(); }));
    $("controls").replaceChildren(...parts);
  }
  function drawStudies() {
    $("studies").replaceChildren(...DATA.results.map((results, i) => el("button", {
      type: "button", "aria-pressed": i === state.study, onclick: () => open(i),
    }, `${SYSTEMS[results.system] || results.system} · ${results.data.origin}`)));
  }

  // ---- player ----------------------------------------------------------------------------------------------------
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
    function board(height, high, label, draw) {
      const top = 20, bottom = 24;
      const y = (value) => height - bottom - (Math.min(Math.max(value, 0), high) / high) * (height - top - bottom);
      const made = sv("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
      for (const tick of ticks(0, high, 4)) made.append(sv("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }), sv("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, tickLabel(tick)));
      for (let round = 1; round <= rounds; round += 1) if (round === 1 || round % (width < 500 ? 6 : 3) === 0) made.append(sv("text", { x: x(round), y: height - 6, "text-anchor": "middle" }, `${round}`));
      made.append(sv("text", { x: left, y: 12 }, label));
      made.append(sv("rect", { x: x(h) - (width - left - right) / rounds / 2, y: top, width: (width - left - right) / rounds, height: height - top - bottom, fill: "var(--line)", opacity: 0.55 }));
      draw(made, y);
      return made;
    }
    const line = (list, y, attributes) => {
      const path = (from, to) => list.slice(from, to).map((value, k) => `${x(from + k + 1)},${y(value)}`).join(" ");
      return [sv("polyline", { points: path(0, h), fill: "none", "stroke-width": 2.2, "stroke-linejoin": "round", ...attributes }),
        sv("polyline", { points: path(h - 1, rounds), fill: "none", "stroke-width": 2.2, ...attributes, opacity: 0.22 })];
    };
    const steps = (list, y) => {
      const half = (width - left - right) / rounds / 2;
      return list.flatMap((value, k) => [`${x(k + 1) - half},${y(value)}`, `${x(k + 1) + half},${y(value)}`]);
    };
    const energies = [episode.demand, episode.renewables, track.action, track.prior_action];
    const highest = Math.max(...energies.flat()) * 1.12;
    const top = board(width < 500 ? 230 : 260, highest, "energy in each round", (made, y) => {
      made.append(sv("polygon", { points: [`${x(1) - (x(2) - x(1)) / 2},${y(0)}`, ...steps(episode.renewables, y), `${x(rounds) + (x(2) - x(1)) / 2},${y(0)}`].join(" "), fill: "var(--sun)" }));
      if (guarded) made.append(sv("polygon", { "data-band": true, points: [...steps(track.low.slice(0, h), y), ...steps(track.high.slice(0, h), y).reverse()].join(" "), fill: "var(--band)", stroke: color("acrl"), "stroke-opacity": 0.5 }));
      made.append(...line(episode.demand, y, { stroke: "var(--demand)", "stroke-dasharray": "1 4", "stroke-linecap": "round" }),
        ...line(track.prior_action, y, { stroke: color("prior"), "stroke-dasharray": "5 4" }), ...line(track.action, y, { stroke: color(track.method) }));
      if (guarded && track.proposal[i] <= highest) made.append(sv("circle", { cx: x(h), cy: y(track.proposal[i]), r: 5.5, fill: "none", stroke: "var(--rl)", "stroke-width": 2 }));
      made.append(sv("circle", { cx: x(h), cy: y(track.action[i]), r: 5, fill: color(track.method) }));
    });
    const ceiling = Math.max(...track.bound) * 1.12;
    const costs = board(width < 500 ? 180 : 200, ceiling, "cost so far", (made, y) => {
      made.append(...line(track.bound, y, { class: "bound" }), ...line(episode.prior_cost, y, { stroke: color("prior"), "stroke-dasharray": "5 4" }), ...line(track.cost, y, { stroke: color(track.method) }),
        sv("circle", { cx: x(h), cy: y(track.cost[i]), r: 5, fill: color(track.method) }));
    });
    const who = NAMES[track.method];
    $("player-boards").replaceChildren(
      legend([{ label: `${who} plays`, color: color(track.method) }, ...(guarded ? [{ label: "its proposal", color: "var(--rl)", shape: "circle" }, { label: "safe", color: "var(--band)", shape: "area" }] : []),
        { label: "prior", color: color("prior"), dash: "5 4" }, { label: "demand", color: "var(--demand)", dash: "2 3" }, { label: "renewables", color: "var(--sun)", shape: "area" }]),
      top, legend([{ label: `cost of ${who}`, color: color(track.method) }, { label: "bound", color: "var(--ink)", dash: "6 4" }, { label: "prior's cost", color: color("prior"), dash: "5 4" }]), costs);
    const hour = episode.start_hour === null ? "" : `, ${String((episode.start_hour + i) % 24).padStart(2, "0")}:00`;
    const moved = guarded && Math.abs(track.proposal[i] - track.action[i]) > 1e-3 * Math.max(1, Math.abs(track.action[i]));
    const firstBreach = track.cost.findIndex((cost, k) => cost > track.bound[k] * (1 + 1e-4));
    const safe = guarded ? `safe is ${show(track.low[i])} to ${show(track.high[i])}; ` : "";
    const outcome = moved ? `${who} proposed ${show(track.proposal[i])}, so the guard played ${show(track.action[i])}.` : `${who} played ${show(track.action[i])}.`;
    const kept = firstBreach >= 0 && firstBreach <= i ? el("strong", { class: "bad" }, `The promise is broken since round ${firstBreach + 1}.`) : el("span", { class: "good" }, "The promise holds.");
    $("readout").replaceChildren(el("b", {}, `Round ${h} of ${rounds}${hour}. `),
      `Demand ${show(episode.demand[i])}, renewables ${show(episode.renewables[i])}. The prior would play ${show(track.prior_action[i])}; ${safe}${outcome} Cost so far `,
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

  // ---- tips, and everything together -------------------------------------------------------------------------------
  for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, (event) => {
    const text = event.target.dataset && event.target.dataset.tip;
    $("tip").hidden = !text;
    if (!text) return;
    $("tip").textContent = text;
    const box = $("tip").getBoundingClientRect();
    $("tip").style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4))}px`;
    $("tip").style.top = `${Math.max(4, event.clientY - box.height - 12)}px`;
  });

  function refresh() {
    drawSummary();
    drawCharts();
    buildPlayer();
    drawPlayer();
  }
  function open(index) {
    play(false);
    const { grid, guard } = DATA.results[index];
    Object.assign(state, { study: index, lam: guard.lam, b: guard.b, rule: grid.trained_rules[grid.trained_rules.length - 1] || grid.rules[0], mode: grid.modes[0], method: "", episode: 0, round: Math.min(8, DATA.results[index].data.horizon) });
    $("charts").replaceChildren();
    drawStudies();
    drawControls();
    refresh();
    drawTables();
  }
  let drawnWidth = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === drawnWidth) return;
    drawnWidth = innerWidth;
    requestAnimationFrame(() => { drawCharts(); drawPlayer(); });
  });
  open(0);
})();
