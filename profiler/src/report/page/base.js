"use strict";
// Small tools: elements, units as the command line writes them, the tip at the pointer.

const $ = (id) => document.getElementById(id);

// An element. Texts are always text nodes: no name from a trace is ever parsed as HTML.
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") node.style.cssText = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

// Between a number and its unit, so that no line ends there.
const NO_BREAK = "\u00a0";
const THIN = "\u2009";
// A sentence of flowtrace with its numbers and units kept together.
const unbroken = (text) => text.replace(/(\d) (?=(%|min|h|d|[nµm]?s|[kMGT]?B)(?![\p{L}\d]))/gu, "$1" + NO_BREAK);
function scaled(value, unit) {
  return (value < 9.95 || (value < 99.95 && unit === "s") ? value.toFixed(1) : value.toFixed(0)) + NO_BREAK + unit;
}
function duration(ns) {
  if (ns === null || ns === undefined) return "?";
  if (ns < 0) return "-" + duration(-ns);
  if (ns === 0) return "0" + NO_BREAK + "s";
  if (ns < 999.5) return Math.round(ns) + NO_BREAK + "ns";
  for (const [size, unit] of [[1e3, "µs"], [1e6, "ms"], [1e9, "s"]]) {
    const value = ns / size;
    if (unit === "s" ? value < 59.95 : value < 999.5) return scaled(value, unit);
  }
  const s = Math.round(ns / 1e9);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 3600) return unbroken(Math.floor(s / 60) + " min " + two(s % 60) + " s");
  const min = Math.round(s / 60);
  if (min < 1440) return unbroken(Math.floor(min / 60) + " h " + two(min % 60) + " min");
  const h = Math.round(min / 60);
  return unbroken(Math.floor(h / 24) + " d " + two(h % 24) + " h");
}
function bytes(n) {
  if (n === null || n === undefined) return "?";
  if (n < 0) return "-" + bytes(-n);
  if (n < 999.5) return Math.round(n) + NO_BREAK + "B";
  for (const unit of ["kB", "MB", "GB", "TB", "PB", "EB"]) {
    n /= 1000;
    if (n < 999.5 || unit === "EB") return scaled(n, unit);
  }
}
function count(n) {
  if (n === null || n === undefined) return "?";
  return String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}
const percent = (share) => (share * 100).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + NO_BREAK + "%";
const sentence = (text) => text[0].toUpperCase() + text.slice(1) + ".";
const many = (n, one, more) => count(n) + " " + (n === 1 ? one : more);
// Zero is written as a dash, so that the other values of a column stand out.
const dash = (format) => (n) => (n === 0 ? "–" : format(n));
const sum = (list) => list.reduce((a, b) => a + (b || 0), 0);

// Hues a golden angle apart: those of the heaviest steps differ most.
function hue(rule) { return (250 + rule * 137.508) % 360; }
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark" ||
  (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
function ruleColours(rule) {
  const h = hue(rule).toFixed(0);
  return isDark()
    ? { pale: `oklch(0.42 0.07 ${h})`, strong: `oklch(0.72 0.13 ${h})`, text: "#f2f3f4" }
    : { pale: `oklch(0.86 0.07 ${h})`, strong: `oklch(0.60 0.14 ${h})`, text: "#14171a" };
}
function colour(name) {
  const probe = colour.probe || (colour.probe = document.body.appendChild(el("span", { hidden: true })));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// The tip: a title, and facts as pairs of name and value.
function tip(event, title, facts) {
  const box = $("tip");
  const pairs = (facts || []).filter((fact) => fact && fact[1] !== null && fact[1] !== undefined);
  box.replaceChildren(el("b", {}, shorten(title, 400)),
    el("dl", {}, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  box.hidden = false;
  const w = box.offsetWidth, h = box.offsetHeight;
  let x = event.clientX + 14, y = event.clientY + 14;
  if (x + w > innerWidth - 8) x = Math.max(8, event.clientX - w - 14);
  if (y + h > innerHeight - 8) y = Math.max(8, event.clientY - h - 14);
  box.style.left = x + "px";
  box.style.top = y + "px";
}
function noTip() { $("tip").hidden = true; }

function shorten(text, width) { return text.length <= width ? text : text.slice(0, width - 1) + "…"; }
// The part of a text that fits into a width on a canvas, ended by "…" if it was cut.
function fitted(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  let fits = 0, over = text.length;
  while (over - fits > 1) {
    const middle = (fits + over) >> 1;
    if (ctx.measureText(text.slice(0, middle) + "…").width <= width) fits = middle;
    else over = middle;
  }
  return fits || ctx.measureText("…").width <= width ? text.slice(0, fits) + "…" : "";
}
function shortenPath(path, width) {
  if (path.length <= width) return path;
  const begin = Math.floor((width - 1) / 3);
  return path.slice(0, begin) + "…" + path.slice(path.length - (width - 1 - begin));
}
// First place in a sorted list whose value is not below `limit`.
function lowerBound(list, limit, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(list[middle]) < limit) low = middle + 1; else high = middle;
  }
  return low;
}
// Round steps for an axis: 1, 2 or 5 times a power of ten.
function niceStep(range, most) {
  const raw = range / most, power = 10 ** Math.floor(Math.log10(raw));
  for (const n of [1, 2, 5, 10]) if (n * power >= raw) return n * power;
}
