// Single kernels on memory beyond all caches: the cpu device, the reference device (a sixteenth of the rows), and for some kernels a plain loop. Counters:
// operations and bytes per second, and the fraction of the processor's measured peak or of the memory bandwidth measured just before and after, whichever
// bounds the kernel more tightly.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/peak.hpp>
#include <xtrain/device/reference/reference.hpp>

#include "processors.hpp"

namespace {

using xtrain::bf16;
using xtrain::host_memory;
using xtrain::span_of;
using xtrain::token;

template <class T>
std::vector<T> numbers(std::size_t n) {
  std::vector<T> values(n);
  std::uint32_t state = 1;
  for (T& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<T>(static_cast<float>(state >> 8U) * 0x1p-24f - 0.5f);
  }
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

struct machine {
  xtrain::cpu::context device{};
  double fp32 = xtrain::measure_peak(device), bf16 = xtrain::measure_peak<xtrain::bf16>(device);
};
const machine& this_machine() {
  static const machine measured;
  return measured;
}
/// Measured each time: other programs change the available bandwidth.
double bandwidth_now() { return xtrain::measure_bandwidth(this_machine().device, 0.15); }

constexpr std::size_t width = 768, context = 1024, head_dim = 64, vocabulary = 50257;

// a kernel's operands, and the kernel. `n`: rows (tokens)

template <class T>
struct rms_norm {
  explicit rms_norm(std::size_t n) : x(numbers<T>(n * width)), weight(numbers<T>(width)), y(n * width), rstd(n) {
    kernel = {.n = n, .c = width, .x_nc = read(x), .weight_c = read(weight), .y_nc = write(y), .rstd_n = write(rstd)};
  }
  std::vector<T> x, weight, y;
  std::vector<float> rstd;
  xtrain::kernel::rms_norm<host_memory, T> kernel;
  void plain() {
    for (std::size_t i = 0; i < kernel.n; ++i) {
      const T* row = x.data() + i * width;
      float squares = 0;
      for (std::size_t j = 0; j < width; ++j) squares += static_cast<float>(row[j]) * static_cast<float>(row[j]);
      rstd[i] = 1.0f / std::sqrt(squares / static_cast<float>(width) + 1e-5f);
      for (std::size_t j = 0; j < width; ++j)
        y[i * width + j] = static_cast<T>(static_cast<float>(row[j]) * rstd[i] * static_cast<float>(weight[j]));
    }
  }
};
template <class T>
struct rms_norm_backward {
  explicit rms_norm_backward(std::size_t n)
      : x(numbers<T>(n * width)), weight(numbers<T>(width)), dy(x), dx(n * width), dweight(width), rstd(n, 1.0f) {
    kernel = {.n = n,
              .c = width,
              .x_nc = read(x),
              .weight_c = read(weight),
              .rstd_n = read(rstd),
              .dy_nc = read(dy),
              .dx_nc = write(dx),
              .dweight_c = write(dweight)};
  }
  std::vector<T> x, weight, dy, dx, dweight;
  std::vector<float> rstd;
  xtrain::kernel::rms_norm_backward<host_memory, T> kernel;
};
template <class T>
struct layer_norm {
  explicit layer_norm(std::size_t n) : x(numbers<T>(n * width)), weight(numbers<T>(width)), bias(weight), y(n * width), mean(n), rstd(n) {
    kernel = {.n = n,
              .c = width,
              .x_nc = read(x),
              .weight_c = read(weight),
              .bias_c = read(bias),
              .y_nc = write(y),
              .mean_n = write(mean),
              .rstd_n = write(rstd)};
  }
  std::vector<T> x, weight, bias, y;
  std::vector<float> mean, rstd;
  xtrain::kernel::layer_norm<host_memory, T> kernel;
};
template <class T>
struct layer_norm_backward {
  explicit layer_norm_backward(std::size_t n)
      : x(numbers<T>(n * width)), weight(numbers<T>(width)), dy(x), dx(n * width), dweight(width), dbias(width), mean(n), rstd(n, 1.0f) {
    kernel = {.n = n,
              .c = width,
              .x_nc = read(x),
              .weight_c = read(weight),
              .mean_n = read(mean),
              .rstd_n = read(rstd),
              .dy_nc = read(dy),
              .dx_nc = write(dx),
              .dweight_c = write(dweight),
              .dbias_c = write(dbias)};
  }
  std::vector<T> x, weight, dy, dx, dweight, dbias;
  std::vector<float> mean, rstd;
  xtrain::kernel::layer_norm_backward<host_memory, T> kernel;
};
template <class T>
struct gelu_tanh {
  explicit gelu_tanh(std::size_t n) : x(numbers<T>(n * width)), y(n * width) { kernel = {.n = x.size(), .x_n = read(x), .y_n = write(y)}; }
  std::vector<T> x, y;
  xtrain::kernel::gelu_tanh<host_memory, T> kernel;
  void plain() {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto z = static_cast<float>(x[i]);
      y[i] = static_cast<T>(0.5f * z * (1.0f + std::tanh(0.7978845608f * (z + 0.044715f * z * z * z))));
    }
  }
};
template <class T>
struct gelu_tanh_backward {
  explicit gelu_tanh_backward(std::size_t n) : x(numbers<T>(n * width)), dy(x), dx(n * width) {
    kernel = {.n = x.size(), .x_n = read(x), .dy_n = read(dy), .dx_n = write(dx)};
  }
  std::vector<T> x, dy, dx;
  xtrain::kernel::gelu_tanh_backward<host_memory, T> kernel;
};
template <class T>
struct swiglu {
  explicit swiglu(std::size_t n) : gate_up(numbers<T>(n * 2 * width)), y(n * width) {
    kernel = {.n = n, .f = width, .gate_up_n2f = read(gate_up), .y_nf = write(y)};
  }
  std::vector<T> gate_up, y;
  xtrain::kernel::swiglu<host_memory, T> kernel;
  void plain() {
    for (std::size_t i = 0; i < kernel.n; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        const auto gate = static_cast<float>(gate_up[i * 2 * width + j]), up = static_cast<float>(gate_up[(i * 2 + 1) * width + j]);
        y[i * width + j] = static_cast<T>(gate / (1.0f + std::exp(-gate)) * up);
      }
  }
};
template <class T>
struct swiglu_backward {
  explicit swiglu_backward(std::size_t n) : gate_up(numbers<T>(n * 2 * width)), dy(n * width), d(n * 2 * width) {
    kernel = {.n = n, .f = width, .gate_up_n2f = read(gate_up), .dy_nf = read(dy), .dgate_up_n2f = write(d)};
  }
  std::vector<T> gate_up, dy, d;
  xtrain::kernel::swiglu_backward<host_memory, T> kernel;
};
template <class T>
struct add {
  explicit add(std::size_t n) : x(numbers<T>(n * width)), y(n * width) { kernel = {.n = x.size(), .x_n = read(x), .y_n = write(y)}; }
  std::vector<T> x, y;
  xtrain::kernel::add<host_memory, T> kernel;
};
template <class T>
struct rotary {
  explicit rotary(std::size_t n) : x(numbers<T>(n * width)), cos_sin(numbers<float>(context * head_dim)), position(n) {
    for (std::size_t i = 0; i < n; ++i) position[i] = static_cast<token>(i % context);
    kernel = {.n = n,
              .heads = width / head_dim,
              .d = head_dim,
              .stride = width,
              .head_stride = head_dim,
              .positions = context,
              .position_n = read(position),
              .cos_sin_pd = read(cos_sin),
              .x = write(x)};
  }
  std::vector<T> x;
  std::vector<float> cos_sin;
  std::vector<token> position;
  xtrain::kernel::rotary<host_memory, T> kernel;
};
/// Gathers as many rows as the table has: the memory traffic is the bytes of both.
template <class T>
struct embedding {
  explicit embedding(std::size_t n) : table(numbers<T>(n * width)), y(n * width), index(n) {
    for (std::size_t i = 0; i < n; ++i) index[i] = static_cast<token>(i * 7919 % n);
    kernel = {.n = n, .v = n, .c = width, .index_n = read(index), .table_vc = read(table), .y_nc = write(y)};
  }
  std::vector<T> table, y;
  std::vector<token> index;
  xtrain::kernel::embedding<host_memory, T> kernel;
  /// Not accumulated: the output is not read.
  [[nodiscard]] std::size_t bytes() const { return (table.size() + y.size()) * sizeof(T) + index.size() * sizeof(token); }
};
template <class T>
struct embedding_backward {
  explicit embedding_backward(std::size_t n) : dy(numbers<T>(n * width)), dtable(n * width), index(n) {
    for (std::size_t i = 0; i < n; ++i) index[i] = static_cast<token>(i * 7919 % n);
    kernel = {.n = n, .v = n, .c = width, .index_n = read(index), .dy_nc = read(dy), .dtable_vc = write(dtable)};
  }
  std::vector<T> dy, dtable;
  std::vector<token> index;
  xtrain::kernel::embedding_backward<host_memory, T> kernel;
};
/// `T` is the compute dtype; a narrow one has a master copy.
template <class T>
struct adamw {
  explicit adamw(std::size_t n)
      : gradient(numbers<T>(n * width)), weight(gradient), m(numbers<float>(n * width)), v(n * width, 1.0f),
        master(std::is_same_v<T, float> ? 0 : n * width) {
    kernel = {.n = n * width,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .epsilon = 1e-8,
              .scalars_1 = span_of(&scalars, 1),
              .correction_2 = span_of(corrections.data(), 2),
              .gradient_n = read(gradient),
              .parameter_n = write(weight),
              .m_n = write(m),
              .v_n = write(v)};
    if (!master.empty()) kernel.master_n = write(master);
  }
  static constexpr xtrain::kernel::step_scalars scalars{.learning_rate = 1e-3};
  static constexpr std::array<double, 2> corrections{1.0, 1.0};
  std::vector<T> gradient, weight;
  std::vector<float> m, v, master;
  xtrain::kernel::adamw<host_memory, T, T, float, float> kernel;
  void plain() {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const auto g = static_cast<float>(gradient[i]);
      m[i] = 0.9f * m[i] + 0.1f * g;
      v[i] = 0.999f * v[i] + 0.001f * g * g;
      weight[i] = static_cast<T>(static_cast<float>(weight[i]) - 1e-3f * m[i] / (std::sqrt(v[i]) + 1e-8f));
    }
  }
};
template <class T>
struct adamw_8bit {
  explicit adamw_8bit(std::size_t n)
      : gradient(numbers<T>(n * width)), weight(gradient), master(std::is_same_v<T, float> ? 0 : n * width), m_code(n * width),
        v_code(n * width), m_scale(xtrain::dynamic_code::blocks(n * width)), v_scale(m_scale.size()) {
    kernel = {.n = n * width,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .epsilon = 1e-8,
              .scalars_1 = span_of(&scalars, 1),
              .correction_2 = span_of(corrections.data(), 2),
              .gradient_n = read(gradient),
              .parameter_n = write(weight),
              .m_code_n = write(m_code),
              .v_code_n = write(v_code),
              .m_scale_k = write(m_scale),
              .v_scale_k = write(v_scale)};
    if (!master.empty()) kernel.master_n = write(master);
  }
  static constexpr xtrain::kernel::step_scalars scalars{.learning_rate = 1e-3};
  static constexpr std::array<double, 2> corrections{1.0, 1.0};
  std::vector<T> gradient, weight;
  std::vector<float> master;
  std::vector<std::uint8_t> m_code, v_code;
  std::vector<float> m_scale, v_scale;
  xtrain::kernel::adamw_8bit<host_memory, T, T, float> kernel;
};
template <class T>
struct lion {
  explicit lion(std::size_t n)
      : gradient(numbers<T>(n * width)), weight(gradient), m(numbers<float>(n * width)), master(std::is_same_v<T, float> ? 0 : n * width) {
    kernel = {.n = n * width,
              .beta1 = 0.9,
              .beta2 = 0.99,
              .scalars_1 = span_of(&scalars, 1),
              .gradient_n = read(gradient),
              .parameter_n = write(weight),
              .m_n = write(m)};
    if (!master.empty()) kernel.master_n = write(master);
  }
  static constexpr xtrain::kernel::step_scalars scalars{.learning_rate = 1e-3};
  std::vector<T> gradient, weight;
  std::vector<float> m, master;
  xtrain::kernel::lion<host_memory, T, T, float, float> kernel;
};
template <class T>
struct sum_of_squares {
  explicit sum_of_squares(std::size_t n) : x(numbers<T>(n * width)), sum(1) {
    kernel = {.n = x.size(), .x_n = read(x), .sum_1 = write(sum)};
  }
  std::vector<T> x;
  std::vector<double> sum;
  xtrain::kernel::sum_of_squares<host_memory, T> kernel;
};
/// Sequences of `context` tokens.
template <class T>
struct attention {
  explicit attention(std::size_t n) : qkv(numbers<T>(n * 3 * width)), o(n * width), lse(n * width / head_dim) {
    const std::size_t h = width / head_dim, t = std::min(context, n);
    kernel = {.shape = {.b = n / t, .t = t, .h = h, .k = h, .d = head_dim},
              .scale = 0.125,
              .qkv = read(qkv),
              .o_bthd = write(o),
              .lse_bht = write(lse)};
  }
  std::vector<T> qkv, o;
  std::vector<float> lse;
  xtrain::kernel::attention<host_memory, T> kernel;
};
template <class T>
struct attention_backward {
  explicit attention_backward(std::size_t n)
      : qkv(numbers<T>(n * 3 * width)), o(numbers<T>(n * width)), d(o), dqkv(qkv.size()), lse(n * width / head_dim, 6.0f) {
    const std::size_t h = width / head_dim, t = std::min(context, n);
    kernel = {.shape = {.b = n / t, .t = t, .h = h, .k = h, .d = head_dim},
              .scale = 0.125,
              .qkv = read(qkv),
              .o_bthd = read(o),
              .lse_bht = read(lse),
              .do_bthd = read(d),
              .dqkv = write(dqkv)};
  }
  std::vector<T> qkv, o, d, dqkv;
  std::vector<float> lse;
  xtrain::kernel::attention_backward<host_memory, T> kernel;
};
template <class T>
struct linear_cross_entropy {
  explicit linear_cross_entropy(std::size_t n)
      : x(numbers<T>(n * width)), weight(numbers<T>(vocabulary * width)), dx(x.size()), dweight(weight.size()), target(n), loss(n) {
    for (std::size_t i = 0; i < n; ++i) target[i] = static_cast<token>(i * 7919 % vocabulary);
    kernel = {.n = n,
              .c = width,
              .v = vocabulary,
              .with_gradient = true,
              .x_nc = read(x),
              .weight_vc = read(weight),
              .target_n = read(target),
              .loss_n = write(loss),
              .dx_nc = write(dx),
              .dweight_vc = write(dweight)};
  }
  std::vector<T> x, weight, dx, dweight;
  std::vector<token> target;
  std::vector<float> loss;
  xtrain::kernel::linear_cross_entropy<host_memory, T> kernel;
};
template <class T>
struct matmul {
  explicit matmul(std::size_t n) : x(numbers<T>(n * width)), weight(numbers<T>(width * width)), y(n * width) {
    kernel = {.m = n, .n = width, .k = width, .lda = width, .ldb = width, .ldc = width, .transpose_b = true};
    kernel.a = read(x);
    kernel.b = read(weight);
    kernel.c = write(y);
  }
  std::vector<T> x, weight, y;
  xtrain::kernel::matmul<host_memory, T, T> kernel;
  void plain() {
    for (std::size_t i = 0; i < kernel.m; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        float sum = 0;
        for (std::size_t p = 0; p < width; ++p) sum += static_cast<float>(x[i * width + p]) * static_cast<float>(weight[j * width + p]);
        y[i * width + j] = static_cast<T>(sum);
      }
  }
};

template <class Case>
void count(benchmark::State& state, const Case& one, bool narrow, double bandwidth_before) {
  const auto runs = static_cast<double>(state.iterations());
  std::size_t bytes = 0;
  if constexpr (requires { one.bytes(); }) bytes = one.bytes();
  else bytes = xtrain::kernel::bytes_moved(one.kernel);
  const double operations = one.kernel.operations(), moved = static_cast<double>(bytes);
  const double peak = narrow ? this_machine().bf16 : this_machine().fp32, bandwidth = 0.5 * (bandwidth_before + bandwidth_now()),
               least = std::max(operations / peak, moved / bandwidth);
  using benchmark::Counter;
  state.counters["op/s"] = Counter(runs * operations, Counter::kIsRate);
  state.counters["B/s"] = Counter(runs * moved, Counter::kIsRate);
  state.counters["share"] = Counter(runs * least, Counter::kIsRate);  // minimum seconds per second of run time
}

template <class Device, class Case>
void run(benchmark::State& state, std::size_t n, bool narrow) {
  Case one(n);
  const typename Device::context on;
  typename Device::stream stream(on);
  std::vector<std::byte> scratch(scratch_bytes(on.properties(), one.kernel) + 64);
  auto* const aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const double before = bandwidth_now();
  for (auto _ : state) {
    run_kernel(stream, one.kernel, span_of(aligned, scratch.size() - 64));
    stream.synchronize();
  }
  count(state, one, narrow, before);
}
template <class Case>
void run_plain(benchmark::State& state, std::size_t n, bool narrow) {
  Case one(n);
  const double before = bandwidth_now();
  for (auto _ : state) {
    one.plain();
    benchmark::ClobberMemory();
  }
  count(state, one, narrow, before);
}

/// One kernel on every device, in fp32 and bf16.
template <template <class> class Case>
void add_benchmarks(std::size_t rows) {
  const auto one = [&]<class T>(T, const char* type, bool narrow) {
    const std::string name = std::string(decltype(Case<T>::kernel)::name) + "/" + type;
    benchmark::RegisterBenchmark((name + "/cpu").c_str(), [=](benchmark::State& s) {
      run<xtrain::cpu, Case<T>>(s, rows, narrow);
    })->UseRealTime();
    if constexpr (requires(Case<T> & c) { c.plain(); })
      benchmark::RegisterBenchmark((name + "/plain").c_str(), [=](benchmark::State& s) {
        run_plain<Case<T>>(s, rows, narrow);
      })->UseRealTime();
    benchmark::RegisterBenchmark((name + "/reference").c_str(), [=](benchmark::State& s) {
      run<xtrain::reference, Case<T>>(s, std::max<std::size_t>(16, rows / 16), narrow);
    })->UseRealTime();
  };
  one(float{}, "fp32", false);
  one(bf16{}, "bf16", true);
}

}  // namespace

int main(int argc, char** argv) {
  const processors_report processors;
  constexpr std::size_t many = std::size_t{1} << 15;  // 96 MiB of fp32, 48 of bf16
  add_benchmarks<rms_norm>(many);
  add_benchmarks<rms_norm_backward>(many);
  add_benchmarks<layer_norm>(many);
  add_benchmarks<layer_norm_backward>(many);
  add_benchmarks<gelu_tanh>(many);
  add_benchmarks<gelu_tanh_backward>(many);
  add_benchmarks<swiglu>(many);
  add_benchmarks<swiglu_backward>(many);
  add_benchmarks<add>(many);
  add_benchmarks<rotary>(many);
  add_benchmarks<embedding>(many);
  add_benchmarks<embedding_backward>(many);
  add_benchmarks<adamw>(many);
  add_benchmarks<adamw_8bit>(many);
  add_benchmarks<lion>(many);
  add_benchmarks<sum_of_squares>(many);
  add_benchmarks<attention>(2 * context);
  add_benchmarks<attention_backward>(2 * context);
  add_benchmarks<linear_cross_entropy>(context);
  add_benchmarks<matmul>(context);
  benchmark::AddCustomContext("device", this_machine().device.description());
  benchmark::AddCustomContext("measured peak, fp32", xtrain::count_text(this_machine().fp32) + " op/s");
  benchmark::AddCustomContext("measured peak, bf16", xtrain::count_text(this_machine().bf16) + " op/s");
  benchmark::AddCustomContext("measured bandwidth", xtrain::count_text(bandwidth_now()) + " B/s");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
