#include <xtrain/device/cpu/cpu.hpp>

std::size_t threads_there() { return xtrain::cpu::context().properties().threads; }
