#!/bin/sh
# nvcc 13.0 and 13.1 (NVIDIA's packages 13.0.88 and 13.1.80): an internal error on a const variable whose value comes from a call with a lambda that captures.
#
# One would expect: nvcc reads the C++20 that g++ reads, and says what it does not support.
# What happens: in a template, `const bool found = choose([&](int x) { ... });` followed by `require<Error>(found)`, a call of a function template with an
#   explicit argument, ends in "Internal error: assertion failed at: "il.c" ... in i_copy_expr_tree". It compiles where the variable is not const, where the
#   lambda captures nothing, where all template arguments are deduced, and outside a template.
# What it means for a user: including such a header is enough, the template need not be used, and the message names no line. Leave const out.
# Seen on 2026-11-28.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"
cat > choice.cu << 'EOF'
template <class Use>
bool choose(Use use) {
  use(1);
  return true;
}
template <class Error>
void require(bool) {}
template <class Flag>
void note(Flag) {}

template <class Visit>
void load(Visit visit) {
#if defined CONST
  const bool found = choose([&](int x) { visit(x); });
  require<int>(found);
#elif defined PLAIN
  bool found = choose([&](int x) { visit(x); });
  require<int>(found);
#else
  const bool found = choose([&](int x) { visit(x); });
  note(found);
#endif
}

int main() {
  int sum = 0;
  load([&](int x) { sum += x; });
  return sum == 1 ? 0 : 1;
}
EOF
for form in CONST PLAIN DEDUCED; do g++ -std=c++20 -Wall -Wextra -Werror -x c++ -D$form choice.cu -o program && ./program; done
echo "g++ $(g++ -dumpfullversion) compiles all three, and they run"
failed=""
for release in 13.0 13.1; do
  python3 -m venv "env$release"
  case $release in 13.0) compiler=13.0.88 ;; *) compiler=13.1.80 ;; esac
  "env$release/bin/pip" -q install "nvidia-cuda-nvcc==$compiler" "nvidia-cuda-crt==$compiler" "nvidia-nvvm==$compiler" "nvidia-cuda-runtime==$release.*"
  nvcc=$(find "env$release" -path '*/bin/nvcc')
  home=$(dirname "$(dirname "$nvcc")")
  for form in CONST PLAIN DEDUCED; do
    if "$nvcc" -std=c++20 -D$form -I "$home/include" -cuda choice.cu -o choice.ii > said 2>&1; then
      echo "nvcc $compiler, $form: compiles"
    else
      echo "nvcc $compiler, $form: $(grep -m 1 -i error said)"
      failed="$failed $release:$form"
    fi
  done
done
[ "$failed" = " 13.0:CONST 13.1:CONST" ]
echo "as expected by this finding"
