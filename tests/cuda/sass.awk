# Reads SASS, as nvdisasm writes it: kernels of products and of attention in 16-bit numbers multiply on tensor cores (HMMA), load operands as matrices (LDSM)
# and copy asynchronously (LDGSTS); no kernel reads or writes local memory (LDL, STL).
#   least   such kernels that there must be at least
function finish() {
  if (name == "") return
  ++all
  if (local_memory > 0) { print name ": " local_memory " accesses to local memory"; ++bad }
  if (name ~ /4simt(12matmul_tiles|17attention_forward|12attention_dq|13attention_dkv)I/ && name !~ /(matmul_tiles|attention_[a-z]+)If/) {
    ++kernels
    if (products == 0 || loads == 0 || copies == 0) { print name ": " products " products, " loads " loads, " copies " copies"; ++bad }
  }
}
/^\.text\./ { finish(); name = substr($1, 7, length($1) - 7); products = loads = copies = local_memory = 0 }
/[ \t]HMMA\./ { ++products }
/[ \t]LDSM\./ { ++loads }
/[ \t]LDGSTS\./ { ++copies }
/[ \t](LDL|STL)[. ]/ { ++local_memory }
END {
  finish()
  print all + 0 " kernels in SASS, of them " kernels + 0 " with products; " bad + 0 " use local memory, or no tensor cores, their loads or asynchronous copies"
  exit bad > 0 || kernels < least
}
