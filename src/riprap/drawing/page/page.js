"use strict";
const told = JSON.parse(document.getElementById("told").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const colour = (n) => `var(--s${n % 8})`;
const nice = (v) => v === null ? "unknown" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(3));

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
  const show = (x, y) => {
    tip.textContent = text;
    tip.style.opacity = 1;
    tip.style.left = Math.min(x + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = y + 14 + "px";
  };
  const hide = () => { tip.style.opacity = 0; };
  node.addEventListener("pointermove", (event) => show(event.clientX, event.clientY));
  node.addEventListener("pointerleave", hide);
  node.addEventListener("focus", () => { const box = node.getBoundingClientRect(); show(box.right, box.bottom); });
  node.addEventListener("blur", hide);
};
