# Reads the report of ptxas: kernels of device/simt/, by the struct that they are. With -v table=1 it prints, for each struct, how many kernels it makes and
# the most registers, in Markdown.
#   least   kernels that there must be at least
function limit_of(name) {
  if (name ~ /^attention_(forward|dq|dkv)$/) return 255  # a block of 128 threads: two blocks on a multiprocessor
  if (name ~ /^(matmul|grouped|grouped_weight)_tiles$/) return wide ? 255 : 128  # two blocks of 256 threads, but for fp32
  if (name ~ /^norm_/) return 192                        # rows are kept in registers
  return 96
}
/Compiling entry function/ {
  name = $0
  sub(/.*function ./, "", name)
  wide = name ~ /_tilesIf/
  if (name !~ /4simt/) { name = "other"; next }
  # the mangled name holds the struct after its namespace: N...4simt<length><name>
  sub(/.*4simt/, "", name)
  length_of = name + 0
  sub(/^[0-9]+/, "", name)
  name = substr(name, 1, length_of)
}
/bytes stack frame/ {
  ++kernels
  if ($1 + 0 > 0) { ++bad; print name ": local memory: " $0 }
}
/Used [0-9]+ registers/ {
  for (i = 1; i < NF; ++i) if ($i == "Used") used = $(i + 1) + 0
  ++number[name]
  if (used > most[name]) most[name] = used
  if (used > limit_of(name)) { ++bad; print name ": " used " registers, of " limit_of(name) }
}
END {
  if (table) for (name in number) print "| `" name "` | " number[name] " | " most[name] " |" | "sort"
  print kernels " kernels, " bad + 0 " over their limits"
  exit bad > 0 || kernels < least
}
