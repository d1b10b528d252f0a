# Reads PTX: kernels of products and of attention in 16-bit numbers multiply on tensor cores, load operands as matrices, and copy asynchronously.
#   least   such kernels that there must be at least
/^\.visible \.entry/ || /^\.weak \.entry/ || /^\.entry/ { name = $0; sub(/.*entry /, "", name); sub(/\(.*/, "", name); products = loads = copies = 0 }
/mma\.sync/ { ++products }
/ldmatrix/ { ++loads }
/cp\.async\.c[ag]/ { ++copies }
/^}/ {
  if (name ~ /4simt(12matmul_tiles|17attention_forward|12attention_dq|13attention_dkv)I/ && name !~ /(matmul_tiles|attention_[a-z]+)If/) {
    ++kernels
    if (products == 0 || loads == 0 || copies == 0) { print name ": " products " products, " loads " loads, " copies " copies"; ++bad }
  }
  name = ""
}
END { print kernels + 0 " kernels with products, " bad + 0 " of them without tensor cores, their loads or asynchronous copies"; exit bad > 0 || kernels < least }
