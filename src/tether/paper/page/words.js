// The summary in words and numbers, and all tables.
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
  const limit = results.limit && state.lam === results.limit.lam && state.b === results.limit.b ? results.limit : null;
  const shareOf = (rule) => (limit ? pick(limit.shares, { mode: state.mode, method: "acrl", rule }).map((row) => row.share).filter((value) => value !== null) : []);
  const reached = shareOf(state.rule);
  const family = limit ? results.grid.rules.map((rule) => [rule, shareOf(rule)]).filter(([, list]) => list.length) : [];
  const left = !reached.length ? null
    : `How much the guarantee leaves: somebody who keeps the promise and knew every disturbance in advance could earn at most ${show(limit.upper)} (on ${limit.episodes} of the test episodes; the trusted policy ${show(limit.prior)}). Of that gain ACRL reaches ${family.map(([rule, list]) => `${Math.round(100 * mean(list))} % with the certificate ${rule}`).join(", ")}.`;
  const size = results.scale === "quick" ? "This was the quick run: a smaller grid, fewer seeds and less training than the full evaluation. Its command with --full --recipe paper is the evaluation as in the paper."
    : results.training.recipe !== "paper" ? "The grid, the seeds and the number of episodes are those of the full evaluation; how the learners were trained is ours. With --recipe paper that is as in the paper, too." : null;
  $("summary").replaceChildren(...[verdict, worth, price, left, size].filter(Boolean).map((text) => el("p", {}, text)));

  const tile = (id, value, label, tone, raw) => el("div", { class: "tile" }, el("strong", { class: tone, id, "data-value": raw }, value), el("span", {}, label));
  const tiles = [
    tile("tile-tests", `${brokenTests.toLocaleString("en")}`, `of ${played.toLocaleString("en")} guarded test episodes break the promise`, brokenTests ? "bad" : "good", brokenTests),
    tile("tile-exploring", `${brokenExploring.toLocaleString("en")}`, `of ${explored.toLocaleString("en")} guarded episodes of learning break it`, brokenExploring ? "bad" : "good", brokenExploring),
  ];
  if (free.length) tiles.push(tile("tile-free", percent(mean(free)), `of the test episodes break it under RL without the guard (${setting})`, mean(free) > 0 ? "bad" : null, mean(free)));
  if (share !== null) tiles.push(tile("tile-share", `${Math.round(100 * share)} %`, `of RL's gain over the trusted policy is kept by ACRL (${setting})`, null, share));
  if (reached.length) tiles.push(tile("tile-limit", `${Math.round(100 * mean(reached))} %`, `of the hindsight limit is reached by ACRL, certificate ${state.rule} (${setting})`, null, mean(reached)));
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
  $("guard-note").textContent = `A learner that plays at random, and a greedy one that takes the best reward of each round and never looks ahead, on ${guard.episodes.toLocaleString("en")} episodes a seed, with no guard and with each certificate (${words(guard.lam, guard.b)}).`;
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
