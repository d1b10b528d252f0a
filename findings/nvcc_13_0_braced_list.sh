#!/bin/sh
# nvcc 13.0 (NVIDIA's packages 13.0.88 and 13.1.80): a loop over a braced list in a template becomes code that g++ refuses.
#
# One would expect: nvcc passes host code on to g++ unchanged in meaning; `for (auto n : {x.rows, x.columns})` is C++11.
# What happens: in a template, where the elements depend on its argument, cudafe++ 13.0 writes the list with parentheses,
#   `({(x.rows), (x.columns)})`, which g++ reads as a statement expression: "expected ';'". A list of addresses is passed
#   on as it is, and so is one with its type written out. 13.1 accepts all three.
# What it means for a user: a header that compiles with g++ alone may not compile with nvcc 13.0. Write
#   std::initializer_list<std::size_t>{x.rows, x.columns}, or use 13.1.
# Seen on 2026-11-28.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"
cat > loop.cu << 'EOF'
#include <cstddef>
#include <initializer_list>

struct size {
  std::size_t rows, columns;
};

template <class T>
std::size_t sum(const T& x) {
  std::size_t all = 0;
#if defined PLAIN
  for (const std::size_t n : {x.rows, x.columns}) all += n;
#elif defined ADDRESSES
  for (const std::size_t* n : {&x.rows, &x.columns}) all += *n;
#else
  for (const std::size_t n : std::initializer_list<std::size_t>{x.rows, x.columns}) all += n;
#endif
  return all;
}

int main() { return sum(size{2, 3}) == 5 ? 0 : 1; }
EOF
for form in PLAIN ADDRESSES TYPED; do g++ -std=c++20 -x c++ -D$form loop.cu -o program && ./program; done
echo "g++ $(g++ -dumpfullversion) compiles all three, and they add up"
failed=""
for release in 13.0 13.1; do
  python3 -m venv "env$release"
  case $release in 13.0) compiler=13.0.88 ;; *) compiler=13.1.80 ;; esac
  "env$release/bin/pip" -q install "nvidia-cuda-nvcc==$compiler" "nvidia-cuda-crt==$compiler" "nvidia-nvvm==$compiler" "nvidia-cuda-runtime==$release.*"
  nvcc=$(find "env$release" -path '*/bin/nvcc')
  home=$(dirname "$(dirname "$nvcc")")
  for form in PLAIN ADDRESSES TYPED; do
    if "$nvcc" -std=c++20 -D$form -I "$home/include" -cuda loop.cu -o loop.ii > said 2>&1 && g++ -std=c++20 -fpreprocessed -c -x c++ loop.ii -o loop.o >> said 2>&1; then
      echo "nvcc $compiler, $form: compiles"
    else
      echo "nvcc $compiler, $form: $(grep -m 1 error said)"
      failed="$failed $release:$form"
    fi
  done
done
[ "$failed" = " 13.0:PLAIN" ]
echo "as expected by this finding"
