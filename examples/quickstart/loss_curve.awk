# Draws the loss of one or more runs, from their JSON-lines logs: an SVG on standard output, a sparkline on standard error.
#
#   awk -f loss_curve.awk pretrain.jsonl finetune.jsonl > loss.svg
function field(name,   rest) {  # the number after "name":
  if (!match($0, "\"" name "\": *")) return ""
  rest = substr($0, RSTART + RLENGTH)
  match(rest, /^[-+0-9.eE]+/)
  return RLENGTH > 0 ? substr(rest, 1, RLENGTH) + 0 : ""
}
FNR == 1 { ++runs; title[runs] = FILENAME; sub(/.*\//, "", title[runs]); sub(/\.jsonl$/, "", title[runs]) }
/"step"/ && /"lr"/ {
  loss = field("loss")
  if (loss == "") next
  ++steps[runs]
  value[runs, steps[runs]] = loss
  if (loss > highest) highest = loss
}
/"evaluation"/ { held_out[runs, ++held_outs[runs]] = field("loss"); held_out_step[runs, held_outs[runs]] = field("step") }
END {
  width = 420; height = 240; left = 46; top = 34; gap = 70
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", \
    left + runs * (width + gap), top + height + 50
  print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
  split("▁ ▂ ▃ ▄ ▅ ▆ ▇ █", bar, " ")
  top_loss = int(highest + 0.999)
  for (r = 1; r <= runs; ++r) {
    x0 = left + (r - 1) * (width + gap)
    printf "<text x=\"%d\" y=\"20\" font-weight=\"bold\">%s</text>\n", x0, title[r]
    for (level = 0; level <= top_loss; ++level) {
      y = top + height * (1 - level / top_loss)
      printf "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n", \
        x0, x0 + width, y, y, x0 - 6, y + 4, level
    }
    printf "<polyline fill=\"none\" stroke=\"#3465a4\" stroke-width=\"1.5\" points=\""
    for (i = 1; i <= steps[r]; ++i)
      printf "%.1f,%.1f ", x0 + width * (i - 0.5) / steps[r], top + height * (1 - value[r, i] / top_loss)
    print "\"/>"
    for (i = 1; i <= held_outs[r]; ++i)
      printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#cc0000\"/>\n", x0 + width * held_out_step[r, i] / steps[r], \
        top + height * (1 - held_out[r, i] / top_loss)
    printf "<text x=\"%d\" y=\"%d\">step %d</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", x0, top + height + 18, 1, \
      x0 + width, top + height + 18, steps[r]
    printf "<text x=\"%d\" y=\"%d\" fill=\"#3465a4\">loss of each step%s</text>\n", x0, top + height + 36, \
      held_outs[r] ? "</text><text x=\"" x0 + 130 "\" y=\"" top + height + 36 "\" fill=\"#cc0000\">held-out loss" : ""
    # the sparkline: means of fifty groups of steps, between the lowest and the highest of them
    groups = steps[r] < 50 ? steps[r] : 50
    low = 1e30; high = -1e30
    for (g = 1; g <= groups; ++g) {
      first = int((g - 1) * steps[r] / groups) + 1; last = int(g * steps[r] / groups)
      sum = 0
      for (i = first; i <= last; ++i) sum += value[r, i]
      mean[g] = sum / (last - first + 1)
      if (mean[g] < low) low = mean[g]
      if (mean[g] > high) high = mean[g]
    }
    line = ""
    for (g = 1; g <= groups; ++g) line = line bar[1 + (high > low ? int(7.999 * (mean[g] - low) / (high - low)) : 0)]
    printf "%-10s %s  %.2f to %.2f\n", title[r], line, value[r, 1], value[r, steps[r]] > "/dev/stderr"
  }
  print "</svg>"
}
