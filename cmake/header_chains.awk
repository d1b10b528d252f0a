# Groups headers that can be compiled as one source without hiding missing includes: prints a line per source, its base (or none) and its headers in order.
#
#   awk -v bases="<header> ..." -v folder=<include folder> [-v define=<macro>] -f header_chains.awk <folder>/<header>...
#
# In a chain each header includes the one before, directly or not: nothing is declared before it that it does not include, so a missing include still fails.
# A header that includes one of the bases follows that base, which can be precompiled; headers that the base includes are left out.
# name_impl.hpp needs no source: name.hpp ends with it. With a macro defined, headers that do not depend on it are left out.

BEGIN {
  if (define != "") defined[define] = 1
}
FNR == 1 {
  header = substr(FILENAME, length(folder) + 2)
  headers[++count] = header
  left_out = 0
}
/^#ifn?def / && $2 in defined { differs[header] = 1 }
/^#ifdef / { left_out = !($2 in defined) }
/^#ifndef / { left_out = $2 in defined }
/^#endif/ { left_out = 0 }
/^#include <xtrain\// && !left_out {
  split($0, part, /[<>]/)
  direct[header, part[2]] = 1
  list[header] = list[header] " " part[2]
}

# within[header, x]: header includes x, directly or not
function find_included(header,    open, size, one, names, n, i) {
  open[size = 1] = header
  while (size > 0) {
    one = open[size--]
    n = split(list[one], names, " ")
    for (i = 1; i <= n; ++i) {
      if ((header, names[i]) in within) continue
      within[header, names[i]] = 1
      if (names[i] in differs) reads_macro[header] = 1
      ++includes[header]
      open[++size] = names[i]
    }
  }
}

# the header before `header`: the largest header of `base` that it includes and that does not include it
function one_before(header, base,    best, i, h) {
  best = ""
  for (i = 1; i <= count; ++i) {
    h = headers[i]
    if ((h in base_of) && base_of[h] == base && !(h in done) && ((header, h) in within) && !((h, header) in within) &&
        (best == "" || includes[h] > includes[best])) best = h
  }
  return best
}

END {
  for (i = 1; i <= count; ++i) find_included(headers[i])

  number = split(bases " none", base, " ")
  for (b = 1; b <= number; ++b)
    for (i = 1; i <= count; ++i) {
      h = headers[i]
      behind = base[b] == "none" || (((h, base[b]) in within) && !((base[b], h) in within) && h != base[b])
      if (!(h in base_of) && behind) base_of[h] = base[b]
    }

  for (i = 1; i <= count; ++i) {
    h = headers[i]
    if (define != "" && !(h in differs) && !(h in reads_macro)) done[h] = 1
    declares = h
    if (sub(/_impl\.hpp$/, ".hpp", declares) && ((h, declares) in direct) && ((declares, h) in direct)) done[h] = 1
  }

  # largest headers first
  for (i = 2; i <= count; ++i) {
    h = headers[i]
    for (j = i; j > 1 && includes[headers[j - 1]] < includes[h]; --j) headers[j] = headers[j - 1]
    headers[j] = h
  }
  for (i = 1; i <= count; ++i) {
    if (headers[i] in done) continue
    chain = ""
    for (h = headers[i]; h != ""; h = one_before(h, base_of[headers[i]])) {
      done[h] = 1
      chain = " " h chain
    }
    print base_of[headers[i]] chain
  }
}
