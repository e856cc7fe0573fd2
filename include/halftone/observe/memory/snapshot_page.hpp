// SPDX-License-Identifier: MIT
/// \file
/// Style and script of the page of snapshot_html.hpp, whose colours are those of all pages (observe/report/style.hpp). The script reads the JSON in the page (snapshot_json.hpp), and needs
/// no library: it draws the bytes in use, stacked by kind, and names the block under the pointer.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

inline constexpr const char* snapshot_style = R"page(
canvas{display:block;width:100%;height:340px;touch-action:pan-y;cursor:crosshair;outline-offset:2px}
.moves{display:flex;flex-wrap:wrap;gap:.4rem;align-items:center;margin:.6rem 0}
button,select{font:inherit;font-size:13px;padding:.3rem .7rem;border:1px solid var(--line);border-radius:4px;
background:var(--strip);color:var(--ink);min-height:2.2rem}
.legend{display:grid;grid-template-columns:repeat(auto-fill,minmax(11.5rem,1fr));gap:.15rem 1rem;list-style:none;padding:0;
margin:.5rem 0;font-size:13px}.legend li{display:flex;align-items:center;gap:.4rem}
.legend span:last-child{margin-left:auto;font-variant-numeric:tabular-nums;color:var(--dim)}
.swatch{flex:none}
#block{min-height:6.2em;margin:.6rem 0;padding:.5rem .7rem;background:var(--strip);border-radius:4px;font-size:14px}
#block b{overflow-wrap:anywhere}#block p{margin:.15rem 0}
.alarm{padding:.5rem .7rem;border-left:4px solid var(--outlived);background:var(--strip)}
td.k{white-space:nowrap}.sums{max-width:28rem}.sums .swatch{margin-right:.4rem}td{overflow-wrap:anywhere}table.data .n{width:5rem}
@media (max-width:600px){canvas{height:280px}.legend{grid-template-columns:repeat(2,1fr);
gap:.15rem .8rem}}
)page";

// In several strings, since a string literal may have at most 65,536 characters, and to be easier to read.

/// Computes what is drawn: `pieces`, each the part of a block's lifetime that belongs to one band of the chart, and `sums`,
/// the bytes of each band after each event.
inline constexpr const char* snapshot_script_data = R"page(
"use strict";
const d = JSON.parse(document.getElementById("data").textContent);
const column = Object.fromEntries(d.columns.map((name, i) => [name, i]));
const bands = ["master", "copy", "moment", "gradient", "other", "workspace", "outlived", "activation"];  // from the bottom up
const outlived = bands.indexOf("outlived");
const first = d.first_event - 1;     // state i: the blocks in use after event first + i; 0: at the window's beginning
const count = d.events - first;
const times = new Float64Array(count).fill(NaN);
const passes = new Int8Array(count).fill(-2);      // of the latest allocation; -1: outside of operations
const pieces = [], of_band = bands.map(() => []);

function add(piece) { if (piece.to > piece.from) { pieces.push(piece); of_band[piece.band].push(piece); } }
d.unrecorded.forEach((bytes, kind) => {
  if (bytes) add({row: null, kind, bytes, band: bands.indexOf(d.kinds[kind]), from: 0, to: count});
});
d.allocations.forEach((row, index) => {
  const kind = row[column.kind], bytes = row[column.bytes], band = bands.indexOf(d.kinds[kind]);
  const from = Math.max(row[column.began] - first, 0), to = row[column.ended] < 0 ? count : row[column.ended] - first;
  const leaves = row[column.outlived] < 0 ? to : Math.max(row[column.outlived] - first, from);
  add({row, index, kind, bytes, band, from, to: leaves});
  add({row, index, kind, bytes, band: outlived, from: leaves, to});
  if (row[column.began] > first) {
    times[from] = row[column.began_us];
    passes[from] = d.operations[row[column.operation]] === "" ? -1 : row[column.pass];
  }
  if (to < count) times[to] = row[column.ended_us];
});
for (const list of of_band) list.sort((a, b) => a.from - b.from);
const known = times.find(t => !Number.isNaN(t)) ?? 0;
for (let i = 0; i < count; ++i) {
  if (Number.isNaN(times[i])) times[i] = i ? times[i - 1] : known;
  if (passes[i] === -2) passes[i] = i ? passes[i - 1] : -1;
}
const sums = bands.map(() => new Float64Array(count + 1)), total = new Float64Array(count);
for (const p of pieces) { sums[p.band][p.from] += p.bytes; sums[p.band][p.to] -= p.bytes; }
for (const s of sums) for (let i = 0; i < count; ++i) { if (i) s[i] += s[i - 1]; total[i] += s[i]; }
const peak = Math.max(d.peak_event - first, 0);
const leaks = sums[outlived].some(bytes => bytes > 0);

function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let u = 0;
  for (; bytes >= 1024 && u < 4; ++u) bytes /= 1024;
  return (u ? bytes.toFixed(bytes < 10 ? 2 : 1) : bytes) + " " + units[u];
}
function span(us) {
  return us < 1e3 ? us + " µs" : us < 1e6 ? (us / 1e3).toFixed(1) + " ms" : (us / 1e6).toFixed(2) + " s";
}
const grouped = n => n.toLocaleString("en");
)page";

/// Drawing: a column of pixels shows the state with the most bytes of those that fall into it, so that no peak is missed.
inline constexpr const char* snapshot_script_drawing = R"page(
const canvas = document.getElementById("timeline"), pen = canvas.getContext("2d");
const view = {by: "event", from: 0, to: count};    // in states, or in microseconds
let cursor = peak, chosen = null, drag = null, plot = null;

function state_at(x) {
  if (view.by === "event") return Math.min(Math.max(Math.floor(x), 0), count - 1);
  let low = 0, high = count - 1;                   // the last state that has begun at that time
  while (low < high) { const mid = (low + high + 1) >> 1; if (times[mid] <= x) low = mid; else high = mid - 1; }
  return low;
}
const place_of = state => view.by === "event" ? state : times[Math.min(state, count - 1)];
const x_of = state => plot.left + (place_of(state) - view.from) / (view.to - view.from) * plot.width;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/// The states that the columns of pixels show: [first column, last column, state].
function columns() {
  const all = [], each = (view.to - view.from) / plot.pixels;
  for (let c = 0, next = state_at(view.from); c < plot.pixels; ++c) {
    const here = next;
    next = state_at(view.from + (c + 1) * each);
    let most = here;
    for (let i = here + 1; i < next; ++i) if (total[i] > total[most]) most = i;
    const last = all[all.length - 1];
    if (last && last[2] === most) last[1] = c; else all.push([c, c, most]);
  }
  return all;
}

/// Returns a function of the state: the height of a piece above the bottom of its band, the bytes of the pieces drawn below
/// it that have not ended.
function offset_of(piece) {
  const below = [];
  for (const q of of_band[piece.band]) { if (q === piece) break; if (q.to > piece.from) below.push(q); }
  below.sort((a, b) => b.to - a.to);
  const ends = below.map(q => q.to), left = [];
  let sum = 0;
  for (const q of below) left.push(sum += q.bytes);
  return state => {                                // the bytes of the pieces below that end after this state
    let low = 0, high = ends.length;
    while (low < high) { const mid = (low + high) >> 1; if (ends[mid] > state) low = mid + 1; else high = mid; }
    return low ? left[low - 1] : 0;
  };
}

function draw() {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio), canvas.height = Math.round(height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  plot = {left: 62, top: 22, width: width - 70, height: height - 62};
  plot.pixels = Math.max(1, Math.round(plot.width * ratio));
  const shown = columns(), pixel = plot.width / plot.pixels, bottom = plot.top + plot.height;
  const most = Math.max(1, ...shown.map(c => total[c[2]])) * 1.06;
  plot.y = bytes => bottom - bytes / most * plot.height;
  plot.bytes = y => (bottom - y) / plot.height * most;
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = colour("strip");
  pen.fillRect(plot.left, plot.top, plot.width, plot.height);
  bands.forEach((name, band) => {
    pen.fillStyle = colour(name);
    for (const [from, to, state] of shown) {
      if (!sums[band][state]) continue;
      let below = 0;
      for (let b = 0; b < band; ++b) below += sums[b][state];
      const y = plot.y(below + sums[band][state]);
      pen.fillRect(plot.left + from * pixel, y, (to - from + 1) * pixel, plot.y(below) - y);
    }
  });
  ["forward", "backward", "update"].forEach((name, pass) => {
    pen.fillStyle = colour(name);
    for (const [from, to, state] of shown)
      if (passes[state] === pass) pen.fillRect(plot.left + from * pixel, bottom + 4, (to - from + 1) * pixel, 6);
  });
  draw_axes(most, bottom);
  if (chosen) draw_chosen(shown, pixel);
  draw_marks(bottom);
}

function draw_axes(most, bottom) {
  pen.fillStyle = colour("dim"), pen.strokeStyle = colour("line"), pen.lineWidth = 0.5;
  pen.textAlign = "right", pen.textBaseline = "middle";
  const tick = 2 ** Math.floor(Math.log2(Math.max(most / 4, 1)));
  for (let bytes = 0; bytes <= most; bytes += tick) {
    pen.fillText(size(bytes), plot.left - 5, plot.y(bytes));
    pen.globalAlpha = 0.5;
    pen.beginPath(), pen.moveTo(plot.left, plot.y(bytes));
    pen.lineTo(plot.left + plot.width, plot.y(bytes)), pen.stroke();
    pen.globalAlpha = 1;
  }
  pen.textBaseline = "top", pen.textAlign = "left";
  let free = plot.left;
  for (const [step, began] of d.steps) {
    const x = x_of(Math.max(began - first, 0));
    if (began < 0 || x < plot.left || x > plot.left + plot.width) continue;
    if (d.steps.length < plot.width / 3)
      pen.beginPath(), pen.moveTo(x, plot.top), pen.lineTo(x, bottom + 14), pen.stroke();
    if (x < free || x > plot.left + plot.width - 40) continue;
    pen.fillText("step " + step, x + 2, bottom + 13);
    free = x + 56;
  }
  const end = x => view.by === "event" ? grouped(Math.max(Math.round(first + x), 0)) : span(Math.round(x));
  pen.fillText((view.by === "event" ? "event " : "") + end(view.from), plot.left, bottom + 27);
  pen.textAlign = "right";
  pen.fillText(end(view.to), plot.left + plot.width, bottom + 27);
}

function draw_chosen(shown, pixel) {
  const offset = offset_of(chosen);
  pen.fillStyle = colour("ink");
  for (const [from, to, state] of shown) {
    if (state < chosen.from || state >= chosen.to) continue;
    let below = offset(state);
    for (let b = 0; b < chosen.band; ++b) below += sums[b][state];
    const y = plot.y(below + chosen.bytes);
    pen.globalAlpha = 0.45;
    pen.fillRect(plot.left + from * pixel, y, (to - from + 1) * pixel, Math.max(plot.y(below) - y, 1.5));
  }
  pen.globalAlpha = 1;
}

function draw_marks(bottom) {
  const mark = (state, text, name, row, end) => {  // the peak's line ends where its column of bytes begins
    const x = x_of(state);
    if (x < plot.left - 1 || x > plot.left + plot.width + 1) return;
    pen.fillStyle = pen.strokeStyle = colour(name), pen.lineWidth = 1;
    pen.beginPath(), pen.moveTo(x, plot.top), pen.lineTo(x - 4, plot.top - 7), pen.lineTo(x + 4, plot.top - 7), pen.fill();
    pen.setLineDash([3, 3]);
    pen.beginPath(), pen.moveTo(x, plot.top), pen.lineTo(x, end), pen.stroke();
    pen.setLineDash([]);
    pen.textBaseline = "bottom", pen.textAlign = x > plot.left + plot.width / 2 ? "right" : "left";
    pen.fillText(text, x + (pen.textAlign === "left" ? 7 : -7), plot.top - 4 + row * 18);
  };
  mark(peak, "peak " + size(total[peak]), "ink", 0, plot.y(total[peak]));
  for (const row of d.refused) mark(row[column.began] - first, "out of memory", "outlived", 1, bottom);
  pen.fillStyle = pen.strokeStyle = colour("ink"), pen.lineWidth = 1;
  const x = x_of(cursor);
  if (x >= plot.left && x <= plot.left + plot.width)
    pen.beginPath(), pen.moveTo(x, plot.top), pen.lineTo(x, bottom), pen.stroke();
  if (drag && drag.to !== drag.from) {
    pen.globalAlpha = 0.15;
    pen.fillRect(Math.min(drag.from, drag.to), plot.top, Math.abs(drag.to - drag.from), plot.height);
    pen.globalAlpha = 1;
  }
}
)page";

/// The pointer, the buttons and the keys; the text about the block under the pointer.
inline constexpr const char* snapshot_script_pointer = R"page(
/// The piece at a height of `bytes` in this state, and the bytes from the piece's beginning to there.
function piece_at(state, bytes) {
  for (let band = 0; band < bands.length; ++band) {
    if (bytes >= sums[band][state]) { bytes -= sums[band][state]; continue; }
    for (const p of of_band[band]) {
      if (p.from > state) break;
      if (p.to <= state) continue;
      if (bytes < p.bytes) return [p, bytes];
      bytes -= p.bytes;
    }
  }
  return [null, 0];
}

function origin(row) {
  const operation = d.operations[row[column.operation]], layer = d.layers[row[column.layer]], step = row[column.step];
  return (operation ? operation + ", " + d.passes[row[column.pass]] : step ? "outside of operations" : "") +
         (layer ? ", layer " + layer : "") + (step ? ", step " + step : (operation ? ", " : "") + "outside of steps");
}
function say(state, piece, inside) {
  const box = document.getElementById("block");
  box.replaceChildren();
  const line = (text, tag = "p", dim = false) => {
    const e = box.appendChild(document.createElement(tag));
    e.textContent = text;
    if (dim) e.className = "dim";
  };
  if (!piece) {
    line(size(total[state]) + " in use", "b");
  } else if (!piece.row) {
    line(size(piece.bytes) + ", " + d.kinds[piece.kind], "b");
    line("allocated before the recording began");
  } else {
    const row = piece.row;
    const part = (d.parts[piece.index] || []).find(([, at, bytes]) => inside >= at && inside < at + bytes);
    line(part ? part[0] : size(piece.bytes) + ", " + d.kinds[piece.kind], "b");
    if (part) line(size(part[2]) + " in a slab of " + size(piece.bytes) + " of kind " + d.kinds[piece.kind]);
    line(origin(row));
    const ended = row[column.ended];
    line((row[column.began] < 0 ? "from before the recording" : "from event " + grouped(row[column.began])) +
         (ended < 0 ? ", in use to the end" : " to " + grouped(ended) + (row[column.began] < 0 ? "" :
          ", " + span(row[column.ended_us] - row[column.began_us]))) +
         (piece.band === outlived ? "; outlives its step" : ""));
  }
  line("after event " + grouped(first + state) + ", at " + span(times[state]) + ": " + size(total[state]) + " in use", "p",
       true);
  bands.forEach((name, band) => {
    const cell = document.getElementById("bytes-" + name);
    if (cell) cell.textContent = size(sums[band][state]);
  });
}
function look(x, y) {
  cursor = state_at(view.from + (x - plot.left) / plot.width * (view.to - view.from));
  // A column of pixels shows the largest of its states.
  const each = (view.to - view.from) / plot.pixels;
  const from = view.from + Math.floor((x - plot.left) / plot.width * plot.pixels) * each;
  for (let i = state_at(from), end = state_at(from + each), most = cursor; i < end; ++i) {
    if (total[i] > total[most]) most = i;
    cursor = most;
  }
  const [piece, inside] = piece_at(cursor, plot.bytes(y));
  chosen = piece;
  say(cursor, piece, inside);
  draw();
}
function show(from, to) {
  const all = view.by === "event" ? [0, count] : [times[0], Math.max(times[count - 1], times[0] + 1)];
  const width = Math.min(Math.max(to - from, view.by === "event" ? 8 : 20), all[1] - all[0]);
  view.from = Math.min(Math.max(from, all[0]), all[1] - width);
  view.to = view.from + width;
  draw();
}
const within = e => [e.offsetX, e.offsetY];
const in_plot = x => Math.min(Math.max(x, plot.left), plot.left + plot.width - 0.01);
canvas.addEventListener("pointermove", e => {
  const [x, y] = within(e);
  if (drag) drag.to = in_plot(x);
  if (x >= plot.left && x < plot.left + plot.width) look(x, y);
});
canvas.addEventListener("pointerdown", e => {
  const [x, y] = within(e);
  look(in_plot(x), y);
  if (e.pointerType === "mouse") drag = {from: in_plot(x), to: in_plot(x)};
});
window.addEventListener("pointerup", () => {
  const done = drag;
  drag = null;
  if (!done) return;
  const at = x => view.from + (x - plot.left) / plot.width * (view.to - view.from);
  if (Math.abs(done.to - done.from) > 6) show(at(Math.min(done.from, done.to)), at(Math.max(done.from, done.to)));
  else draw();
});
const move = {
  in: () => zoom(0.5), out: () => zoom(2), all: () => show(-Infinity, Infinity),
  left: () => show(view.from - (view.to - view.from) / 2, view.to - (view.to - view.from) / 2),
  right: () => show(view.from + (view.to - view.from) / 2, view.to + (view.to - view.from) / 2),
  peak: () => { cursor = peak; chosen = null; say(cursor, null, 0); zoom(0.25); }
};
function zoom(factor) {
  const width = (view.to - view.from) * factor, at = place_of(cursor);
  const inside = at >= view.from && at <= view.to || factor === 0.25;
  const middle = inside ? at : (view.from + view.to) / 2;
  show(middle - width / 2, middle + width / 2);
}
for (const button of document.querySelectorAll("button[data-move]"))
  button.addEventListener("click", () => move[button.dataset.move]());
document.getElementById("axis").addEventListener("change", e => {
  view.by = e.target.value;
  view.from = view.by === "event" ? 0 : times[0];
  view.to = view.by === "event" ? count : Math.max(times[count - 1], times[0] + 1);
  draw();
});
canvas.addEventListener("keydown", e => {
  const by = {ArrowLeft: -1, ArrowRight: 1}[e.key];
  if (!by) return;
  e.preventDefault();
  cursor = Math.min(Math.max(cursor + by, 0), count - 1);
  chosen = null;
  say(cursor, null, 0);
  draw();
});
if (!leaks) document.getElementById("bytes-outlived").parentElement.remove();
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
say(cursor, null, 0);
draw();
)page";

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
