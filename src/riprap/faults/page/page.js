let model = told.models[0], chosen = null;

const mine = () => told.operators.filter((o) => o.model === model);
const name = (o) => o.targets.join("+");
const worst = () => Math.max(...mine().map((o) => o.I ?? 0), 1e-9);
const level = (o) => o.verdict === "unknown" || o.verdict === "no effect" ? "var(--none)" : o.verdict === "restart is enough" ? "var(--low)" : o.I >= .3 * worst() ? "var(--high)" : "var(--middle)";
const keys = (node, act) => node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } });

function table() {
  const body = byId("metrics");
  body.replaceChildren(...mine().map((o) => {
    const dot = element("span", { class: "dot" });
    dot.style.background = level(o);
    const cell = (text, range) => element("td", {}, text, ...(range && range[0] !== null && range[0] !== range[1] ? [element("span", { class: "range" }, `${nice(range[0])} to ${nice(range[1])}`)] : []));
    const row = element("tr", { tabindex: 0, role: "button", "data-name": name(o), onclick: () => choose(name(o)) },
      element("td", {}, dot, name(o)), cell(o.C === null ? "?" : o.C.toFixed(2), o.C_interval), cell(o.D === null ? "?" : o.D.toFixed(2)),
      cell(o.anova), cell(o.R === null ? "?" : String(o.R), o.R_interval), cell(o.I === null ? "?" : o.I.toFixed(2), o.I_interval), element("td", {}, o.words));
    keys(row, () => choose(name(o)));
    return row;
  }));
}

function drawing() {
  for (const group of document.querySelectorAll(".drawing .operator")) {
    const own = mine().find((o) => o.targets.includes(group.dataset.name));
    const stand = own ?? mine().find((o) => o.targets.some((t) => (told.stands_for[model][t] ?? []).includes(group.dataset.name)));
    group.classList.toggle("target", own !== undefined);
    for (const box of group.querySelectorAll("rect")) box.style.fill = own || stand ? level(own ?? stand) : "var(--none)";
    for (const text of group.querySelectorAll("text")) text.style.fill = "var(--ink)";
    if (!own && !stand) continue;
    group.onclick = () => choose(name(own ?? stand));
    group.setAttribute("tabindex", 0);
    group.setAttribute("role", "button");
    group.onkeydown = (event) => { if (event.key === "Enter") group.onclick(); };
  }
}

function figures() {
  const o = mine().find((each) => name(each) === chosen);
  const long = told.outages.length - 1;
  byId("chosen").textContent = chosen;
  chart(byId("by-outage"), {
    x: `outage, ${told.length}`, y: "quality score", zero: 1,
    series: o.quality.map((row, i) => {
      const line = o.fits[i], ends = line ? [o.outages[0], o.outages[long]].map((at) => [at, line.start + line.slope * at]) : undefined;
      return {
        name: `offset ${told.offsets[i].toLocaleString("en")}${line ? ": " + o.lines[i] : ""}`, colour: colour(i), form: i, fit: ends,
        points: row.map((v, j) => ({ x: o.outages[j], y: v, low: o.quality_intervals[i][j][0], high: o.quality_intervals[i][j][1], tip: `${told.outages[j]} at ${told.offsets[i].toLocaleString("en")}: ${nice(v)}` })),
      };
    }),
  });
  chart(byId("by-offset"), {
    x: "offset, position in the source", y: "quality score", zero: 1,
    series: mine().map((each, n) => ({
      name: name(each), colour: colour(n), form: n,
      points: each.quality.map((row, i) => ({ x: told.offsets[i], y: row[long], low: each.quality_intervals[i][long][0], high: each.quality_intervals[i][long][1], tip: `${name(each)} at ${told.offsets[i].toLocaleString("en")}: ${nice(row[long])}` })),
    })),
  });
  byId("chosen-too").textContent = chosen;
  const both = (r, i) => r === null ? "?" : `${r} (${i.toFixed(2)})`;
  byId("offsets").replaceChildren(element("tr", {}, ...["outage", ...told.offsets.map((at) => `at ${at.toLocaleString("en")}`), "worst"].map((text) => element("th", {}, text))));
  byId("at-offsets").replaceChildren(...o.by_outage.map((each) => element("tr", {}, element("td", {}, each.outage),
    ...each.R_at.map((r, i) => element("td", {}, both(r, each.I_at[i]))), element("td", {}, both(each.R, each.I)))));
  const curve = told.curves.find((c) => c.model === model && c.targets.join("+") === chosen);
  if (!curve) { byId("over-time").replaceChildren(); return; }
  const last = curve.outages[curve.outages.length - 1];
  chart(byId("over-time"), {
    x: "section of the output", y: "quality against golden runs", wide: true, zero: 1,
    marks: [{ x: curve.begins, name: "fault" }, { x: curve.begins + last.R, name: `R = ${last.R}` }],
    series: curve.outages.map((line, n) => ({
      name: `${line.outage}: R ${line.R}, I ${nice(line.I)}`, colour: colour(n), form: n,
      points: line.errors.slice(0, Math.max(...curve.outages.map((l) => l.R)) * 1.3 + 15).map((e, i) => ({ x: line.first + i, y: e === null ? null : 1 + e, tip: `${line.outage}, section ${line.first + i}: ${nice(e === null ? null : 100 * e)} %` })),
    })),
  });
}

function choose(which) {
  chosen = which;
  for (const row of document.querySelectorAll("#metrics tr")) row.classList.toggle("chosen", row.dataset.name === which);
  for (const group of document.querySelectorAll(".drawing .operator")) group.classList.toggle("chosen", which.split("+").includes(group.dataset.name));
  figures();
}

function show(which) {
  model = which;
  for (const button of document.querySelectorAll(".models button")) button.classList.toggle("chosen", button.textContent === which);
  table(); drawing();
  choose(mine().some((o) => name(o) === chosen) ? chosen : name(mine()[0]));
}

if (told.models.length > 1) byId("models").append(...told.models.map((m) => element("button", { type: "button", onclick: () => show(m) }, m)));
show(model);
document.body.dataset.ready = "yes";
