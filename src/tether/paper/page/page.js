// Controls, tips, and everything together.
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
  if (rules.length > 1) parts.push(segments("rule", "certificate", rules, state.rule, (rule) => { state.rule = rule; refresh(); }));
  if (modes.length > 1) parts.push(segments("mode", "learned", modes, state.mode, (mode) => { state.mode = mode; refresh(); }));
  $("controls").replaceChildren(...parts);
}
function drawStudies() {
  $("studies").replaceChildren(...DATA.results.map((results, i) => el("button", {
    type: "button", "aria-pressed": i === state.study, onclick: () => open(i),
  }, `${results.title} · ${results.data.origin}`)));
}

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
