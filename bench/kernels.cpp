// Kernels of the cpu device, with the operations and bytes per second they reach; the matrix product also as the plain loop that its
// formula is.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/peak.hpp>

namespace {

using xtrain::host_memory;
using xtrain::span_of;

template <class T>
std::vector<T> numbers(std::size_t n) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = static_cast<T>(static_cast<double>(xtrain::uniform_open(xtrain::random_word({.seed = 1}, i))) - 0.5);
  return values;
}
template <class T>
auto read(const std::vector<T>& values) {
  return span_of(std::span<const T>(values));
}
template <class T>
auto write(std::vector<T>& values) {
  return span_of(std::span<T>(values));
}

const xtrain::cpu::context& device() {
  static const xtrain::cpu::context on;
  return on;
}

/// Runs one kernel over and over; counts its operations and the bytes it must move.
template <class Kernel>
void measure(benchmark::State& state, const Kernel& kernel) {
  xtrain::cpu::stream stream(device());
  std::vector<std::byte> scratch(scratch_bytes(device().properties(), kernel) + 64);
  auto* const aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  for (auto _ : state) {
    run_kernel(stream, kernel, span_of(aligned, scratch.size() - 64));
    stream.synchronize();
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["op/s"] = benchmark::Counter(runs * kernel.operations(), benchmark::Counter::kIsRate);
  state.counters["B/s"] = benchmark::Counter(runs * static_cast<double>(xtrain::kernel::bytes_moved(kernel)), benchmark::Counter::kIsRate);
}

template <class T>
void matmul(benchmark::State& state) {
  const auto m = static_cast<std::size_t>(state.range(0)), n = static_cast<std::size_t>(state.range(1)),
             k = static_cast<std::size_t>(state.range(2));
  const auto a = numbers<T>(m * k), b = numbers<T>(n * k);
  std::vector<T> c(m * n);
  xtrain::kernel::matmul<host_memory, T, T> kernel{.m = m, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n, .transpose_b = true};
  kernel.a = read(a);
  kernel.b = read(b);
  kernel.c = write(c);
  measure(state, kernel);
}
template <class T>
void plain_matmul(benchmark::State& state) {
  const auto m = static_cast<std::size_t>(state.range(0)), n = static_cast<std::size_t>(state.range(1)),
             k = static_cast<std::size_t>(state.range(2));
  const auto a = numbers<T>(m * k), b = numbers<T>(n * k);
  std::vector<T> c(m * n);
  for (auto _ : state) {
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        float sum = 0;
        for (std::size_t p = 0; p < k; ++p) sum += static_cast<float>(a[i * k + p]) * static_cast<float>(b[j * k + p]);
        c[i * n + j] = static_cast<T>(sum);
      }
    benchmark::DoNotOptimize(c.data());
    benchmark::ClobberMemory();
  }
  state.counters["op/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 2.0 * static_cast<double>(m * n * k), benchmark::Counter::kIsRate);
}

constexpr std::size_t rows = 1024, width = 768;

template <class T>
void rms_norm(benchmark::State& state) {
  const auto x = numbers<T>(rows * width), weight = numbers<T>(width);
  std::vector<T> y(rows * width);
  std::vector<float> rstd(rows);
  measure(state, xtrain::kernel::rms_norm<host_memory, T>{
                     .n = rows, .c = width, .x_nc = read(x), .weight_c = read(weight), .y_nc = write(y), .rstd_n = write(rstd)});
}
template <class T>
void gelu(benchmark::State& state) {
  const auto x = numbers<T>(rows * 4 * width);
  std::vector<T> y(x.size());
  measure(state, xtrain::kernel::gelu_tanh<host_memory, T>{.n = x.size(), .x_n = read(x), .y_n = write(y)});
}
template <class T>
void swiglu(benchmark::State& state) {
  const auto gate_up = numbers<T>(rows * 8 * width);
  std::vector<T> y(rows * 4 * width);
  measure(state, xtrain::kernel::swiglu<host_memory, T>{.n = rows, .f = 4 * width, .gate_up_n2f = read(gate_up), .y_nf = write(y)});
}
void adamw(benchmark::State& state) {
  const std::size_t n = std::size_t{1} << 24;
  const auto gradient = numbers<float>(n);
  auto weight = numbers<float>(n), m = numbers<float>(n), v = std::vector<float>(n, 1.0f);
  measure(state, xtrain::kernel::adamw<host_memory, float, float, float, float>{.n = n,
                                                                                .learning_rate = 1e-3,
                                                                                .beta1 = 0.9,
                                                                                .beta2 = 0.999,
                                                                                .epsilon = 1e-8,
                                                                                .gradient_n = read(gradient),
                                                                                .parameter_n = write(weight),
                                                                                .m_n = write(m),
                                                                                .v_n = write(v)});
}

void shapes(benchmark::internal::Benchmark* bench) {
  for (const auto& shape : {std::array<long, 3>{256, 2304, 768}, {256, 768, 768}, {256, 3072, 768}, {256, 768, 3072}, {1, 3072, 768}})
    bench->Args({shape[0], shape[1], shape[2]});
}

}  // namespace

BENCHMARK(matmul<float>)->Apply(shapes)->UseRealTime();
BENCHMARK(matmul<xtrain::bf16>)->Apply(shapes)->UseRealTime();
BENCHMARK(plain_matmul<float>)->Args({256, 768, 768})->UseRealTime();
BENCHMARK(rms_norm<float>)->UseRealTime();
BENCHMARK(rms_norm<xtrain::bf16>)->UseRealTime();
BENCHMARK(gelu<float>)->UseRealTime();
BENCHMARK(swiglu<float>)->UseRealTime();
BENCHMARK(adamw)->UseRealTime();

int main(int argc, char** argv) {
  benchmark::AddCustomContext("measured peak, fp32", xtrain::count_text(xtrain::measure_peak(device())) + " op/s");
  benchmark::AddCustomContext("measured peak, bf16", xtrain::count_text(xtrain::measure_peak<xtrain::bf16>(device())) + " op/s");
  benchmark::AddCustomContext("measured bandwidth", xtrain::count_text(xtrain::measure_bandwidth(device())) + " B/s");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
