"use strict";
const told = JSON.parse(document.getElementById("told").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const colour = (n) => `var(--s${n % 8})`;
const nice = (v) => v === null ? "unknown" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(3));
let model = told.models[0], chosen = null;

const make = (name, attributes, parent, text) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};
const element = (name, attributes, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) key === "onclick" ? made.addEventListener("click", value) : made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const tip = byId("tip");
const hover = (node, text) => {
  node.addEventListener("pointermove", (event) => {
    tip.textContent = text;
    tip.style.opacity = 1;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = event.clientY + 14 + "px";
  });
  node.addEventListener("pointerleave", () => { tip.style.opacity = 0; });
};

const steps = (low, high, many) => {
  const rough = (high - low) / many, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(+at.toPrecision(12));
  return found;
};

// series: {name, colour, points: [{x, y, low, high, tip}], fit: [[x, y], [x, y]]}
function chart(holder, { series, x, y, wide, zero, marks = [], labels }) {
  const width = wide ? 1000 : 480, height = wide ? 300 : 280, left = 54, right = 14, top = 12, bottom = 40;
  const off = new Set();
  const canvas = make("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y} by ${x}` });
  const draw = () => {
    canvas.replaceChildren();
    const shown = series.filter((s) => !off.has(s.name));
    const points = shown.flatMap((s) => s.points).filter((p) => p.y !== null);
    if (!points.length) { make("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, canvas, "nothing to show"); return; }
    const xs = points.map((p) => p.x), ys = points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]).concat(zero ?? []);
    let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    if (x0 === x1) { x0 -= 1; x1 += 1; }
    if (y0 === y1) { y0 -= .5; y1 += .5; }
    const room = (y1 - y0) * .06; y0 -= room; y1 += room;
    const at = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
    const up = (v) => height - bottom - (v - y0) / (y1 - y0) * (height - top - bottom);
    for (const v of steps(y0, y1, 5)) {
      make("line", { class: "axis", x1: left, x2: width - right, y1: up(v), y2: up(v) }, canvas);
      make("text", { x: left - 6, y: up(v) + 4, "text-anchor": "end" }, canvas, nice(v));
    }
    for (const v of labels ? [...new Set(xs)] : steps(x0, x1, wide ? 10 : 5)) make("text", { x: at(v), y: height - bottom + 16, "text-anchor": "middle" }, canvas, labels ? labels(v) : nice(v));
    make("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, canvas, x);
    make("text", { x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, canvas, y);
    if (zero !== undefined) make("line", { class: "zero", x1: left, x2: width - right, y1: up(zero), y2: up(zero) }, canvas);
    for (const mark of marks.filter((m) => m.x >= x0 && m.x <= x1)) {
      make("line", { class: "mark", x1: at(mark.x), x2: at(mark.x), y1: top, y2: height - bottom }, canvas);
      make("text", { x: at(mark.x) + 4, y: top + 10 }, canvas, mark.name);
    }
    for (const s of shown) {
      if (s.fit) make("line", { class: "fit", stroke: s.colour, x1: at(s.fit[0][0]), y1: up(s.fit[0][1]), x2: at(s.fit[1][0]), y2: up(s.fit[1][1]) }, canvas);
      const known = s.points.filter((p) => p.y !== null);
      make("path", { class: "series", stroke: s.colour, d: known.map((p, n) => `${n ? "L" : "M"}${at(p.x).toFixed(1)} ${up(p.y).toFixed(1)}`).join("") }, canvas);
      const size = known.length > 60 ? 1.6 : 3.4;
      for (const p of known) {
        if (p.low !== undefined && p.high > p.low) make("line", { class: "whisker", stroke: s.colour, x1: at(p.x), x2: at(p.x), y1: up(p.low), y2: up(p.high) }, canvas);
        make("circle", { cx: at(p.x), cy: up(p.y), r: size, fill: s.colour }, canvas);
        const point = make("circle", { class: "point", cx: at(p.x), cy: up(p.y), r: Math.max(6, size), fill: "transparent" }, canvas);
        make("title", {}, point, p.tip);
        hover(point, p.tip);
      }
    }
  };
  const legend = element("div", { class: "legend" });
  for (const s of series) {
    const dot = element("span", { class: "dot" });
    dot.style.background = s.colour;
    const button = element("button", { type: "button", title: "show or hide" }, dot, s.name);
    button.setAttribute("aria-pressed", true);
    button.addEventListener("click", () => { off.has(s.name) ? off.delete(s.name) : off.add(s.name); button.classList.toggle("off"); button.setAttribute("aria-pressed", !off.has(s.name)); draw(); });
    legend.append(button);
  }
  draw();
  holder.replaceChildren(canvas, legend);
}

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
        name: `offset ${told.offsets[i].toLocaleString("en")}${line ? ": " + o.lines[i] : ""}`, colour: colour(i), fit: ends,
        points: row.map((v, j) => ({ x: o.outages[j], y: v, low: o.quality_intervals[i][j][0], high: o.quality_intervals[i][j][1], tip: `${told.outages[j]} at ${told.offsets[i].toLocaleString("en")}: ${nice(v)}` })),
      };
    }),
  });
  chart(byId("by-offset"), {
    x: "offset, position in the source", y: "quality score", zero: 1,
    series: mine().map((each, n) => ({
      name: name(each), colour: colour(n),
      points: each.quality.map((row, i) => ({ x: told.offsets[i], y: row[long], low: each.quality_intervals[i][long][0], high: each.quality_intervals[i][long][1], tip: `${name(each)} at ${told.offsets[i].toLocaleString("en")}: ${nice(row[long])}` })),
    })),
  });
  const curve = told.curves.find((c) => c.model === model && c.targets.join("+") === chosen);
  if (!curve) { byId("over-time").replaceChildren(); return; }
  const last = curve.outages[curve.outages.length - 1];
  chart(byId("over-time"), {
    x: "section of the output", y: "quality against golden runs", wide: true, zero: 1,
    marks: [{ x: curve.begins, name: "fault" }, { x: curve.begins + last.R, name: `R = ${last.R}` }],
    series: curve.outages.map((line, n) => ({
      name: `${line.outage}: R ${line.R}, I ${nice(line.I)}`, colour: colour(n),
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
