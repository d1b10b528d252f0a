# What Doxygen reads in place of a header: comments as they are written, where Doxygen would take their signs for commands and tags. Lines of a comment that are
# indented by three spaces or more (shapes, rounding, errors) are shown as they stand.
function escaped(text,   parts, n, i, all) {
  n = split(text, parts, "`")
  all = ""
  for (i = 1; i <= n; ++i) {
    if (i % 2 == 1) {
      gsub(/\\/, "\\\\\\\\", parts[i])
      gsub(/[@<>#]/, "\\\\&", parts[i])
      gsub(/>::/, ">\\\\::", parts[i])
    }
    all = all (i > 1 ? "`" : "") parts[i]
  }
  return all
}
function close_verbatim() {
  if (is_verbatim) print "@endverbatim"
  is_verbatim = 0
}
function close_comment() {
  close_verbatim()
  if (is_comment) print indent "*/"
  is_comment = 0
}
/^ *\/\/\/($|[^\/<])/ {
  at = index($0, "///")
  text = substr($0, at + 3)
  indent = substr($0, 1, at - 1)
  gsub(/\*\//, "* /", text)
  gsub(/\/\*/, "/ *", text)
  if (text ~ /^   / && is_comment) {
    if (!is_verbatim) print "@verbatim"
    is_verbatim = 1
    print substr(text, 4)
  } else {
    close_verbatim()
    if (!is_comment) print indent "/**"
    print escaped(text)
  }
  is_comment = 1
  next
}
{ close_comment() }
/\/\/\/</ {
  at = index($0, "///<")
  print substr($0, 1, at + 3) escaped(substr($0, at + 4))
  next
}
{ print }
