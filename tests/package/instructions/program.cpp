// Opens the cpu; other.cpp is compiled for other or equal instructions.
#include <cstdio>

#include <xtrain/device/cpu/cpu.hpp>

std::size_t threads_there();

int main() try {
  const xtrain::cpu::context on;
  std::printf("opened by both: %s\n", on.properties().threads == threads_there() ? "yes" : "no");
} catch (const xtrain::config_error& problem) {
  std::printf("refused: %s\n", problem.what());
}
