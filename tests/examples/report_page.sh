#!/bin/bash
# The page of examples/report.cpp in Chromium: in both themes and on a phone nothing is wider than the screen, texts are readable, numbers appear under the
# pointer, and the page makes no request. Skipped without a Chromium.
#
#   report_page.sh REPORT [FOLDER]      screenshots go to FOLDER
set -eu
report=$1
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$chromium" ]; then
  echo "skipped: there is no Chromium (Debian's package 'chromium')"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pictures=${2:-$work}
fail() {
  echo "report_page: $1" >&2
  exit 1
}

# two runs, one resumed, with ranks, and names that look like markup
awk -v rate=0.02 -v first=0 -v last=400 -f - > "$work/baseline.jsonl" << 'AWK'
function event(name, rest) { printf "{\"event\": \"%s\", %s}\n", name, rest }
function settings() { event("settings", "\"recipe\": {\"precision\": \"fp32\", \"objective\": \"next_token\", \"device\": \"<script>document.title = 1</script>\"}, \"settings\": {\"learning_rate\": 0.003, \"a_setting_with_a_rather_long_name_for_a_phone\": \"a value that is much longer than a phone is wide, and has_no_place_where_it_could_be_broken_into_lines\"}, \"plan\": {\"weights\": 3544064, \"gradients\": 3544064, \"stash\": 70000000}") }
BEGIN {
  srand(7)
  event("run", "\"max_steps\": 400, \"first_step\": 0, \"parameters\": 886016, \"trainable_parameters\": 886016, \"global_batch_size\": 16, \"seq_length\": 128, \"unix_time\": 1795600000, \"memory\": {\"weights\": 3544064}")
  settings()
  for (s = 1; s <= last; ++s) {
    if (s == 151) { event("run", "\"max_steps\": 400, \"first_step\": 150, \"parameters\": 886016, \"unix_time\": 1795603600"); settings() }
    event("step", sprintf("\"step\": %d, \"loss\": %.6f, \"lr\": %.6g, \"grad_norm\": %.4f, \"tokens\": 2048, \"tokens_per_second\": %.1f, \"seconds\": %.4f, \"loss_scale\": 1, \"peak_memory\": 97243144", s, 2 + 3.5 * exp(-rate * s) + 0.2 * rand(), 0.003 * (1 - s / 400), 1 + rand(), 25000 + 900 * rand(), 0.08 + 0.01 * rand()))
    if (s % 50 == 0) {
      event("evaluation", sprintf("\"step\": %d, \"loss\": %.6f", s, 2.3 + 3.2 * exp(-rate * s)))
      for (r = 0; r < 24; ++r) event("rank", sprintf("\"step\": %d, \"rank\": %d, \"seconds\": 0.08, \"waiting\": %.4f, \"tokens\": 85, \"peak_memory\": 97243144", s, r, 0.03 * rand()))
    }
  }
  event("skipped", "\"step\": 401, \"in_a_row\": 1, \"overflow\": 0, \"reason\": \"gradient of <b>lm_head.weight\"")
}
AWK
sed -e 's/0\.003/0.01/g' -e '/"event": "rank"/d' "$work/baseline.jsonl" | head -n 300 > "$work/rate-<i>&.jsonl"
"$report" "$work/baseline.jsonl" --output "$work/one.html" > "$work/log"
"$report" "$work/baseline.jsonl" "$work/rate-<i>&.jsonl" --output "$work/two.html" >> "$work/log"

# measurements are appended to the page's script, and become the title
cat > "$work/probe.js" << 'JS'
setTimeout(() => {
  const wrong = [], rgb = text => (text.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + .05) / (Math.min(light(a), light(b)) + .05);
  const back = element => { for (; element; element = element.parentElement) { const c = getComputedStyle(element).backgroundColor; if (c !== "rgba(0, 0, 0, 0)") return rgb(c); } return [255, 255, 255]; };
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("wider than the screen: " + document.documentElement.scrollWidth + " > " + innerWidth);
  for (const all of document.querySelectorAll("details")) all.open = true;
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("wider than the screen when its tables are open: " + document.documentElement.scrollWidth + " > " + innerWidth);
  for (const element of document.querySelectorAll("h1,h2,h3,p,td,th,dt,dd,small,.tick,.sub,.unit,.axis,summary,label span,li"))
    if (element.textContent.trim() && element.offsetParent) {
      const c = contrast(rgb(getComputedStyle(element).color), back(element));
      if (c < 4.5) wrong.push("contrast " + c.toFixed(2) + ": " + element.tagName + " " + element.textContent.slice(0, 30));
    }
  for (const line of document.querySelectorAll(".line")) {
    const c = contrast(rgb(getComputedStyle(line).color), back(line.closest(".card")));
    if (c < 3) wrong.push("contrast of a line: " + c.toFixed(2));
  }
  for (const tick of document.querySelectorAll(".linear .tick")) {
    const card = tick.closest(".card").getBoundingClientRect(), box = tick.getBoundingClientRect();
    if (box.width && (box.left < card.left || box.right > card.right)) wrong.push("a tick outside of its chart: " + tick.textContent);
  }
  const plot = document.querySelector(".plot.linear"), box = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width * .4, clientY: box.top + 20}));
  if (!/at step \d/.test((plot.querySelector(".read") || {}).textContent)) wrong.push("no numbers under the pointer");
  if (document.querySelectorAll("svg").length < 5) wrong.push("too few drawings");
  const names = [...document.querySelectorAll("[id]")].map(e => e.id);
  if (new Set(names).size !== names.length) wrong.push("an id is there twice");
  for (const label of document.querySelectorAll("[aria-labelledby],label[for]"))
    if (!document.getElementById(label.getAttribute("aria-labelledby") || label.htmlFor)) wrong.push("a label of nothing");
  if (performance.getEntriesByType("resource").length) wrong.push("asks for " + performance.getEntriesByType("resource")[0].name);
  const dark = light(back(document.body)) < .2;
  const found = "width " + innerWidth + (dark ? " dark" : " light") + (wrong.length ? " WRONG " + wrong.slice(0, 5).join("; ") : " right");
  if (parent !== window) parent.postMessage(found, "*");
  else document.title = found;
}, 100);
JS
# a window is at least 500 pixels wide, a frame in it may be as narrow as a phone
cat > "$work/phone.html" << 'PHONE'
<!DOCTYPE html><meta name="color-scheme" content="light dark"><title>nothing</title>
<script>addEventListener("message", message => { document.title = message.data; });</script>
<iframe src="probed.html" style="border:0;width:390px;height:900px"></iframe>
PHONE
in_chromium() {
  timeout 100 "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=3000 --user-data-dir="$work/profile" "$@" 2> "$work/chromium.log" || {
    tail -n 5 "$work/chromium.log" >&2
    fail "chromium failed"
  }
}
for page in one two; do
  # the probe belongs before the end of the script
  awk -v probe="$work/probe.js" '/^<\/script>$/ { while ((getline line < probe) > 0) print line } { print }' "$work/$page.html" > "$work/probed.html"
  for show in light:1:1280 dark:0:1280 light:1:390 dark:0:390; do
    IFS=: read -r theme scheme width <<< "$show"
    in_chromium --blink-settings=preferredColorScheme=$scheme --window-size="1280,1000" --dump-dom "file://$work/$([ "$width" = 390 ] && echo phone || echo probed).html" > "$work/dom"
    found=$(sed -n 's:.*<title>\(.*\)</title>.*:\1:p' "$work/dom" | head -n 1)
    case "$found" in
      "width $width $theme right") ;;
      *) fail "$page.html, $theme, $width pixels: $found" ;;
    esac
    in_chromium --blink-settings=preferredColorScheme=$scheme --window-size="$width,2400" --screenshot="$pictures/$page-$theme-$width.png" "file://$work/$page.html" > /dev/null
    [ "$(stat -c %s "$pictures/$page-$theme-$width.png")" -gt 20000 ] || fail "$page.html, $theme: the picture is empty"
  done
done
# the page's switch against the reader's preference, without a script
sed -e 's/ checked><span>Auto/><span>Auto/' -e 's/id="theme-light"/id="theme-light" checked/' "$work/probed.html" > "$work/switched.html"
in_chromium --blink-settings=preferredColorScheme=0 --window-size=1280,1000 --dump-dom "file://$work/switched.html" > "$work/dom"
grep -q "<title>width 1280 light right</title>" "$work/dom" || fail "the switch to light does not work"
echo "report_page: light, dark and on a phone, as it should be"
