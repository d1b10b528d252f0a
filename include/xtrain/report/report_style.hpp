// Style and script of a page. The script only adds numbers under the pointer.
#pragma once

#include <string_view>

namespace xtrain::detail {

/// Both themes list the same names; eight run colors with contrast of at least 3:1, then repeated with patterns.
inline constexpr std::string_view report_light_colors =
    "color-scheme:light;--page:#f5f6f9;--card:#fff;--ink:#1a2130;--muted:#56607a;--line:#dbe0ea;--grid:#e8ebf2;--soft:#f0f2f7;--mark:#fff3d1;--warn:#9a5b00;"
    "--c0:#2563eb;--c1:#c2570c;--c2:#15803d;--c3:#9333ea;--c4:#d11f4a;--c5:#0e7490;--c6:#8a6d00;--c7:#5b6577";
inline constexpr std::string_view report_dark_colors =
    "color-scheme:dark;--page:#0e1219;--card:#161b25;--ink:#e7ebf3;--muted:#9ca8bf;--line:#2c3444;--grid:#232b39;--soft:#1d2431;--mark:#3a3113;--warn:#f5c263;"
    "--c0:#6ea8ff;--c1:#ff9d4d;--c2:#4cd07d;--c3:#c79bff;--c4:#ff7d9c;--c5:#3fd0e0;--c6:#e3c94a;--c7:#a9b4c7";

inline constexpr std::string_view report_style = R"css(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
 font-variant-numeric:tabular-nums}
header,main,footer{max-width:76rem;margin:0 auto;padding:0 1.25rem}
header{display:flex;flex-wrap:wrap;gap:.75rem 2rem;align-items:center;justify-content:space-between;padding-top:1.75rem}
h1{font-size:1.6rem;line-height:1.25;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.25rem 0 .75rem}
h3{font-size:1rem;margin:0;font-weight:650}
p{margin:.25rem 0}
.sub,.note,.unit,footer{color:var(--muted)}
.note{font-size:.82rem}
footer{padding-top:2rem;padding-bottom:2.5rem;font-size:.85rem}
.name{unicode-bidi:isolate;overflow-wrap:anywhere}
.seen{position:absolute;width:1px;height:1px;margin:-1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
fieldset.theme{border:1px solid var(--line);border-radius:999px;padding:.15rem;margin:0;display:flex;background:var(--card)}
.theme label{cursor:pointer}
.theme span{display:block;padding:.15rem .8rem;border-radius:999px;color:var(--muted);font-size:.85rem}
.theme input{position:absolute;opacity:0}
.theme input:checked+span{background:var(--ink);color:var(--card)}
.theme input:focus-visible+span{outline:2px solid var(--c0);outline-offset:2px}
.card{background:var(--card);border:1px solid var(--line);border-radius:.8rem;padding:1rem 1.1rem;margin:0;min-width:0}
.grid{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr))}
.wide,.curves>:last-child:nth-child(even){grid-column:1/-1}
.tiles{display:grid;gap:.75rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,10.5rem),1fr));margin:1rem 0 0}
.tiles .card{padding:.75rem .9rem}
.tiles dt{color:var(--muted);font-size:.82rem}
.tiles dd{margin:0;font-size:1.35rem;font-weight:650;line-height:1.3;letter-spacing:-.01em}
.tiles dd small{display:block;font-size:.8rem;font-weight:400;color:var(--muted);letter-spacing:0}
.warnings{border-color:var(--warn);margin-top:1rem}
.warnings h2{margin:0 0 .25rem;font-size:1rem;color:var(--warn)}
.warnings ul{margin:.25rem 0 0;padding-left:1.2rem;overflow-wrap:anywhere}
.table{overflow-x:auto;-webkit-overflow-scrolling:touch}
.table:focus-visible,summary:focus-visible{outline:2px solid var(--c0);outline-offset:2px;border-radius:.3rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;color:var(--muted);font-size:.82rem;padding-bottom:.4rem}
th,td{padding:.4rem .7rem;text-align:right;border-bottom:1px solid var(--grid);vertical-align:top}
thead th{color:var(--muted);font-weight:550;font-size:.82rem;border-bottom-color:var(--line);vertical-align:bottom}
th[scope=row],thead th:first-child{text-align:left;padding-left:0}
th[scope=row]{font-weight:500}
tbody tr:last-child>*{border-bottom:0}
td small,th small{display:block;color:var(--muted);font-weight:400}
td:not(.text){white-space:nowrap}
.card>details:first-child{margin-top:0}
td.text,th.text{text-align:left;overflow-wrap:anywhere;min-width:7rem}
tr.differs>*{background:var(--mark)}
tr.differs th[scope=row]::before{content:"\2260\00a0";font-weight:700}
tr.differs th[scope=row]{padding-left:.5rem}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.best{font-weight:700}
.best::after{content:" \2605";color:var(--c2)}
.chip{display:inline-block;width:.8em;height:.8em;border-radius:.25em;margin-right:.45em;vertical-align:-.05em;background:currentColor}
.legend{display:flex;flex-wrap:wrap;gap:.35rem 1.1rem;margin:.6rem 0 .75rem;padding:0;list-style:none;font-size:.9rem}
.legend label{cursor:pointer}
.legend input{accent-color:currentColor;margin:0 .4em 0 0;vertical-align:-.1em}
.legend .name{color:var(--ink)}
figure.chart figcaption{display:flex;flex-wrap:wrap;gap:0 .6rem;align-items:baseline;margin-bottom:.6rem}
.unit{font-size:.85rem}
.log-label{margin-left:auto;font-size:.82rem;color:var(--muted);border:1px solid var(--line);border-radius:999px;padding:.05rem .7rem;cursor:pointer}
input.log{position:absolute;opacity:0}
input.log:focus-visible~figcaption .log-label{outline:2px solid var(--c0);outline-offset:2px}
input.log:checked~figcaption .log-label{background:var(--ink);color:var(--card)}
input.log:checked~.linear{display:none}
input.log:not(:checked)~.logarithmic{display:none}
.plot{position:relative;margin:.4rem .6rem 2.6rem 3.6rem;height:13.5rem}
.wide .plot{height:20rem}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible;display:block}
.plot svg *{vector-effect:non-scaling-stroke}
.tick{position:absolute;font-size:.75rem;line-height:1;color:var(--muted);white-space:nowrap}
.y .tick{right:calc(100% + .5rem);transform:translateY(50%)}
.x .tick{top:calc(100% + .45rem);transform:translateX(-50%)}
.x .tick:last-of-type{transform:translateX(-85%)}
.x .axis{position:absolute;top:calc(100% + 1.45rem);left:0;right:0;text-align:center;font-size:.75rem;color:var(--muted)}
.gridline{stroke:var(--grid);stroke-width:1;fill:none}
.baseline{stroke:var(--line);stroke-width:1;fill:none}
.line{fill:none;stroke:currentColor;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}
.raw{fill:none;stroke:currentColor;stroke-width:1;opacity:.3;stroke-linejoin:round}
.band{fill:currentColor;fill-opacity:.16;stroke:currentColor;stroke-opacity:.35;stroke-width:.8;stroke-linejoin:round}
.held{stroke-dasharray:6 4;stroke-width:1.6}
.dots{stroke:currentColor;stroke-width:6.5;stroke-linecap:round;fill:none}
.resumed{stroke:currentColor;stroke-width:1.2;stroke-dasharray:2 4;opacity:.8;fill:none}
.skips{stroke:var(--c4);stroke-width:2;fill:none}
.cursor{position:absolute;top:0;bottom:0;width:1px;background:var(--muted);pointer-events:none}
.read{position:absolute;top:.3rem;z-index:2;pointer-events:none;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.35rem .6rem;
 font-size:.8rem;line-height:1.45;box-shadow:0 4px 14px rgb(0 0 0/.16);max-width:75%;white-space:nowrap;overflow:hidden}
.read b{font-weight:650}
details{margin-top:.5rem}
summary{cursor:pointer;color:var(--muted);font-size:.85rem}
details[open]>summary{margin-bottom:.5rem}
.bars{display:grid;grid-template-columns:max-content minmax(0,1fr) max-content;gap:.4rem .7rem;align-items:center;font-size:.85rem}
.row{display:contents}
.bar{display:flex;height:1.15rem;border-radius:.3rem;background:var(--soft);overflow:hidden}
.bar i{display:block;background:currentColor;border-right:1px solid var(--card)}
.bar i.waiting{opacity:.35}
.bars.many{gap:.1rem .7rem}
.bars.many .bar{height:.7rem}
.runhead{display:flex;flex-wrap:wrap;gap:.2rem .8rem;align-items:baseline;margin-bottom:.6rem}
ul.plain{margin:.3rem 0 0;padding-left:1.2rem;overflow-wrap:anywhere}
@media (max-width:40rem){
 header,main,footer{padding-left:.8rem;padding-right:.8rem}
 .card{padding:.85rem .8rem}
 .plot{margin-left:3.1rem;margin-right:.4rem;height:12rem}
 .wide .plot{height:15rem}
 .x .tick.odd{display:none}
 .bars,.bars.many{grid-template-columns:minmax(0,1fr);gap:.6rem}
 .bars.many{gap:.3rem}
 .row{display:grid;grid-template-columns:minmax(0,1fr) max-content;gap:.1rem .7rem}
 .row .bar{grid-row:2;grid-column:1/-1}
 .table thead th:first-child,.table th[scope=row]{position:sticky;left:0;background:var(--card);min-width:6.5rem;max-width:10rem;overflow-wrap:break-word}
 .table th[scope=row]:has(code){min-width:9rem}
 .table tr.differs th[scope=row]{background:var(--mark)}
 .tiles{grid-template-columns:repeat(2,minmax(0,1fr))}
}
@media print{fieldset.theme,.log-label{display:none}.card{break-inside:avoid}}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
)css";

inline constexpr std::string_view report_script = R"js(
for (const figure of document.querySelectorAll("figure.chart")) {
  const series = [...figure.querySelectorAll("[data-v]")].map(line => ({
    line, name: line.dataset.name, x: line.dataset.x.split(" ").map(Number), v: line.dataset.v.split(" ")}));
  for (const plot of figure.querySelectorAll(".plot")) {
    const cursor = document.createElement("div"), read = document.createElement("div");
    cursor.className = "cursor"; read.className = "read"; cursor.hidden = read.hidden = true;
    plot.append(cursor, read);
    const from = Number(plot.dataset.from), to = Number(plot.dataset.to);
    const hide = () => { cursor.hidden = read.hidden = true; };
    plot.addEventListener("pointerleave", hide);
    const show = event => {
      const box = plot.getBoundingClientRect(), part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const step = from + part * (to - from), rows = [];
      for (const {line, name, x, v} of series) {
        if (getComputedStyle(line).display === "none") continue;
        let low = 0, high = x.length - 1;
        while (low < high) { const half = (low + high) >> 1; if (x[half] < step) low = half + 1; else high = half; }
        if (low > 0 && step - x[low - 1] < x[low] - step) --low;
        if (step > x[x.length - 1] + (to - from) * .02 || step < x[0] - (to - from) * .02) continue;
        const row = document.createElement("div"), chip = document.createElement("span"), value = document.createElement("b");
        chip.className = "chip"; chip.style.color = getComputedStyle(line).color;
        value.textContent = v[low];
        row.append(chip, value, " " + name + " at step " + x[low].toLocaleString("en"));
        rows.push(row);
      }
      if (!rows.length) return hide();
      read.replaceChildren(...rows);
      cursor.hidden = read.hidden = false;
      cursor.style.left = part * 100 + "%";
      read.style.left = part < .5 ? "calc(" + part * 100 + "% + 12px)" : "auto";
      read.style.right = part < .5 ? "auto" : "calc(" + (1 - part) * 100 + "% + 12px)";
    };
    plot.addEventListener("pointermove", show);
    plot.addEventListener("pointerdown", show);
  }
}
)js";

}  // namespace xtrain::detail
