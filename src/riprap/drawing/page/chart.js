const steps = (low, high, many) => {
  const rough = (high - low) / many, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * .999);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(+at.toPrecision(12));
  return found;
};

// Labels of a scale have as many decimals as its steps need, so that no two are alike.
const labelled = (values) => {
  const gap = values.length > 1 ? values[1] - values[0] : 1;
  const decimals = Math.min(12, Math.max(0, -Math.floor(Math.log10(gap) + 1e-9)));
  return values.map((v) => v.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
};

// Lines differ by the form of their points as well as by colour, for whoever cannot tell colours apart.
const FORMS = ["M-1 0A1 1 0 1 0 1 0A1 1 0 1 0-1 0Z", "M-.9-.9H.9V.9H-.9Z", "M0-1.2L1.15.9H-1.15Z", "M0-1.35L1.2 0L0 1.35L-1.2 0Z", "M0 1.2L1.15-.9H-1.15Z"];
const DASHES = ["none", "9 4", "2 3", "10 3 2 3"];
const form = (s, x, y, size, parent) => make("path", {
  d: FORMS[(s.form ?? 0) % FORMS.length], transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})`, "vector-effect": "non-scaling-stroke",
  fill: s.hollow ? "var(--card)" : s.colour, stroke: s.colour, "stroke-width": s.hollow ? 1.5 : 0,
}, parent);

// series: {name, colour, points: [{x, y, low, high, tip}]} and, where wanted, fit: [[x, y], [x, y]], a straight line;
// form, hollow: of its points; dash: of its line; thin; line and points_shown: false leaves them out; off: hidden
// at first. base: a value the scale must reach. dodge: points at one x stand side by side. ticks: [x, label] of each
// place to name on the x axis.
function chart(holder, { series, x, y, wide, zero, base, dodge, ticks, marks = [] }) {
  const width = wide ? 1000 : 480, height = wide ? 300 : 280, right = 14, top = marks.length ? 26 : 12, bottom = 40;
  const off = new Set(series.filter((s) => s.off).map((s) => s.name));
  const canvas = make("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y} by ${x}` });
  const draw = () => {
    canvas.replaceChildren();
    const shown = series.filter((s) => !off.has(s.name));
    const points = shown.flatMap((s) => s.points).filter((p) => p.y !== null);
    if (!points.length) { make("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, canvas, "nothing to show"); return; }
    const xs = points.map((p) => p.x), ys = points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]).concat(zero ?? [], base ?? []);
    let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    if (x0 === x1) { x0 -= 1; x1 += 1; }
    if (y0 === y1) { y0 -= .5; y1 += .5; }
    const room = (y1 - y0) * .06, aside = (x1 - x0) * (wide ? .01 : .04);
    if (y0 !== base) y0 -= room;
    y1 += room; x0 -= aside; x1 += aside;
    const rows = steps(y0, y1, 6), names = labelled(rows), left = 30 + 6.2 * Math.max(3, ...names.map((n) => n.length));
    const at = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
    const up = (v) => height - bottom - (v - y0) / (y1 - y0) * (height - top - bottom);
    rows.forEach((v, n) => {
      make("line", { class: "axis", x1: left, x2: width - right, y1: up(v), y2: up(v) }, canvas);
      make("text", { x: left - 6, y: up(v) + 4, "text-anchor": "end" }, canvas, names[n]);
    });
    const columns = steps(x0, x1, wide ? 10 : 5), heads = labelled(columns);
    let free = -Infinity;
    for (const [v, head] of ticks ?? columns.map((v, n) => [v, heads[n]])) {
      make("line", { class: "axis", x1: at(v), x2: at(v), y1: height - bottom, y2: height - bottom + 4 }, canvas);
      const half = 3.2 * head.length;
      if (at(v) - half < free) continue;
      make("text", { x: Math.min(at(v), width - half - 2), y: height - bottom + 16, "text-anchor": "middle" }, canvas, head);
      free = at(v) + half + 4;
    }
    make("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, canvas, x);
    make("text", { x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, canvas, y);
    if (zero !== undefined) make("line", { class: "zero", x1: left, x2: width - right, y1: up(zero), y2: up(zero) }, canvas);
    for (const mark of marks.filter((m) => m.x >= x0 && m.x <= x1)) {
      make("line", { class: "mark", x1: at(mark.x), x2: at(mark.x), y1: top, y2: height - bottom }, canvas);
      make("text", { x: at(mark.x) + (at(mark.x) > width / 2 ? 2 : -2), y: top - 8, "text-anchor": at(mark.x) > width / 2 ? "end" : "start" }, canvas, mark.name);
    }
    shown.forEach((s, number) => {
      const shift = dodge ? (number - (shown.length - 1) / 2) * Math.min(4, 24 / shown.length) : 0, across = (v) => at(v) + shift;
      if (s.fit) make("line", { class: "fit", stroke: s.colour, x1: at(s.fit[0][0]), y1: up(s.fit[0][1]), x2: at(s.fit[1][0]), y2: up(s.fit[1][1]) }, canvas);
      const known = s.points.filter((p) => p.y !== null);
      if (s.line !== false) make("path", { class: `series${s.thin ? " thin" : ""}`, stroke: s.colour, "stroke-dasharray": DASHES[(s.dash ?? 0) % DASHES.length], d: known.map((p, n) => `${n ? "L" : "M"}${across(p.x).toFixed(1)} ${up(p.y).toFixed(1)}`).join("") }, canvas);
      const many = known.length > 60, size = many ? 1.6 : s.thin ? 2.4 : 3.6;
      for (const p of known) {
        if (p.low !== undefined && p.high > p.low) {
          make("line", { class: "whisker", stroke: s.colour, x1: across(p.x), x2: across(p.x), y1: up(p.low), y2: up(p.high) }, canvas);
          if (dodge) for (const end of [p.low, p.high]) make("line", { class: "whisker", stroke: s.colour, x1: across(p.x) - 3, x2: across(p.x) + 3, y1: up(end), y2: up(end) }, canvas);
        }
        if (s.points_shown !== false) form(s, across(p.x), up(p.y), size, canvas);
        const point = make("circle", { class: "point", cx: across(p.x), cy: up(p.y), r: Math.max(6, size), fill: "transparent", ...(many ? {} : { tabindex: 0, role: "img", "aria-label": p.tip }) }, canvas);
        make("title", {}, point, p.tip);
        hover(point, p.tip);
      }
    });
  };
  const legend = element("div", { class: "legend" });
  for (const s of series) {
    const sample = make("svg", { class: "sample", viewBox: "0 0 30 12", "aria-hidden": true });
    if (s.line !== false) make("line", { class: `series${s.thin ? " thin" : ""}`, stroke: s.colour, "stroke-dasharray": DASHES[(s.dash ?? 0) % DASHES.length], x1: 0, x2: 30, y1: 6, y2: 6 }, sample);
    if (s.points_shown !== false) form(s, 15, 6, s.thin ? 2.4 : 4, sample);
    const button = element("button", { type: "button", title: "show or hide" }, sample, s.name);
    const mark = () => { button.classList.toggle("off", off.has(s.name)); button.setAttribute("aria-pressed", !off.has(s.name)); };
    button.addEventListener("click", () => { off.has(s.name) ? off.delete(s.name) : off.add(s.name); mark(); draw(); });
    mark();
    legend.append(button);
  }
  draw();
  holder.replaceChildren(canvas, legend);
}
