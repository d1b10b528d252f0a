// Where the time of a training step goes: every kernel of GPT-2 is timed on the cpu device, products by what they are for.
//
//   step_kernels fp32|bf16_mixed [MICRO_BATCH_SIZE] [SEQ_LENGTH] [STEPS] [small]     GPT-2 124M, or one of one million parameters
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/device/cpu/peak.hpp>
#include <xtrain/xtrain.hpp>

#include "processors.hpp"

namespace {

struct kernel_time {
  std::size_t runs = 0;
  double seconds = 0, processor_seconds = 0, operations = 0, bytes = 0;
};
using step_times = std::map<std::string, kernel_time, std::less<>>;

/// The cpu device with a clock around every kernel, fill and copy.
struct timed_cpu {
  static constexpr std::string_view name = "cpu";
  using memory = xtrain::host_memory;
  using properties = xtrain::cpu_properties;

  class context : public xtrain::cpu::context {
   public:
    context() = default;
    [[nodiscard]] static context for_dry_run(const xtrain::cpu_properties& like) { return context(xtrain::cpu::context::for_dry_run(like)); }
    [[nodiscard]] step_times& times() const { return *times_; }

   private:
    explicit context(const xtrain::cpu::context& like) : xtrain::cpu::context(like) {}
    std::shared_ptr<step_times> times_ = std::make_shared<step_times>();
  };

  class stream : public xtrain::cpu_stream {
   public:
    explicit stream(const context& on) : xtrain::cpu_stream(on), on_(on) {}

    void fill_zero(void* to, std::size_t bytes) const {
      timed("fill_zero", 0, static_cast<double>(bytes), [&] { xtrain::cpu_stream::fill_zero(to, bytes); });
    }
    void copy_within(void* to, const void* from, std::size_t bytes) const {
      timed("copy", 0, 2 * static_cast<double>(bytes), [&] { xtrain::cpu_stream::copy_within(to, from, bytes); });
    }

    template <class Work>
    void timed(std::string_view kernel, double operations, double bytes, Work&& work) const {
      const auto begin = std::chrono::steady_clock::now();
      const double busy = processor_seconds();
      work();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      kernel_time& time = on_.times()[std::string(kernel)];
      time.runs += 1;
      time.seconds += seconds;
      time.processor_seconds += processor_seconds() - busy;
      time.operations += operations;
      time.bytes += bytes;
    }

   private:
    context on_;
  };
};

template <class Kernel>
std::string_view name_of(const Kernel&) {
  return Kernel::name;
}
template <class T, class C>
std::string_view name_of(const xtrain::kernel::matmul<xtrain::host_memory, T, C>& k) {
  return k.transpose_a ? "matmul: weight's gradient" : k.transpose_b ? "matmul: forward" : "matmul: input's gradient";
}

template <class Kernel>
requires requires(xtrain::cpu_stream& stream, const Kernel& kernel, xtrain::scratch_span<xtrain::host_memory> scratch) { run_kernel(stream, kernel, scratch); }
void run_kernel(timed_cpu::stream& stream, const Kernel& kernel, xtrain::scratch_span<xtrain::host_memory> scratch) {
  stream.timed(name_of(kernel), kernel.operations(), static_cast<double>(xtrain::kernel::bytes_moved(kernel)),
               [&] { run_kernel(static_cast<xtrain::cpu_stream&>(stream), kernel, scratch); });
}

struct fp32_run : xtrain::defaults {
  using device = timed_cpu;
};
struct bf16_run : fp32_run {
  using precision = xtrain::bf16_mixed;
};

/// The kernels of each step.
class step_watch final : public xtrain::observer {
 public:
  explicit step_watch(const timed_cpu::context& on) : on_(on) {}
  using observer::on;
  void on(const xtrain::step_done& done) override {
    steps_.emplace_back(done.seconds, std::exchange(on_.times(), {}));
  }

  /// All kernels in the step of median length; the first step, which touches memory for the first time, is left out.
  void print(const char* name, std::size_t tokens, double peak, double bandwidth) {
    steps_.erase(steps_.begin());
    std::sort(steps_.begin(), steps_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto& [seconds, times] = steps_[steps_.size() / 2];
    std::vector<std::pair<std::string, kernel_time>> sorted(times.begin(), times.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    std::printf("%s: %.0f ms, %.1f tokens/s; peak %.0f GFLOP/s, copies %.1f GB/s\n", name, 1e3 * seconds, static_cast<double>(tokens) / seconds, peak * 1e-9,
                bandwidth * 1e-9);
    std::printf("\n| kernel | runs | ms | of the step | processors | GFLOP/s | of the peak | GB/s |\n|---|---|---|---|---|---|---|---|\n");
    double rest = seconds;
    for (const auto& [kernel, time] : sorted) {
      rest -= time.seconds;
      std::printf("| %s | %zu | %.1f | %.1f %% | %.2f | %.1f | %.0f %% | %.1f |\n", kernel.c_str(), time.runs, 1e3 * time.seconds, 100 * time.seconds / seconds,
                  time.processor_seconds / time.seconds, 1e-9 * time.operations / time.seconds, 100 * time.operations / time.seconds / peak,
                  1e-9 * time.bytes / time.seconds);
    }
    std::printf("| outside kernels | | %.1f | %.1f %% | | | | |\n", 1e3 * rest, 100 * rest / seconds);
  }

 private:
  const timed_cpu::context& on_;
  std::vector<std::pair<double, step_times>> steps_;
};

template <class Recipe>
void run(const char* name, const xtrain::decoder_config& sizes, std::size_t rows, std::size_t context, std::size_t steps) {
  const timed_cpu::context on;
  xtrain::gpt2<Recipe> model(sizes, on);
  xtrain::trainer trainer(model, {.max_steps = steps, .micro_batch_size = rows, .seq_length = context, .learning_rate = 1e-4});
  xtrain::dataset data("random tokens", xtrain::sequence_layout::stream);
  std::vector<xtrain::token> tokens(rows * context * (steps + 1) + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<xtrain::token>(xtrain::random_word({.seed = 1}, i) % sizes.vocab_size);
  data.add(tokens);
  data.finish();
  step_watch watch(on);
  trainer.attach(watch);
  on.times().clear();
  trainer.fit(data);
  watch.print(name, rows * context, xtrain::measure_peak<typename xtrain::gpt2<Recipe>::compute>(on), xtrain::measure_bandwidth(on, 0.2));
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  const std::string_view precision = argc > 1 ? argv[1] : "bf16_mixed";
  const auto number = [&](int index, std::size_t otherwise) {
    return argc > index ? static_cast<std::size_t>(std::strtoull(argv[index], nullptr, 10)) : otherwise;
  };
  const std::size_t rows = number(2, 4), context = number(3, 256), steps = std::max<std::size_t>(2, number(4, 6));
  xtrain::decoder_config sizes{.vocab_size = 50257, .hidden_size = 768, .num_layers = 12, .num_heads = 12, .max_position_embeddings = 1024};
  if (argc > 5) sizes = {.vocab_size = 1024, .hidden_size = 128, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 256};
  if (precision == "fp32") run<fp32_run>("fp32", sizes, rows, context, steps);
  else if (precision == "bf16_mixed") run<bf16_run>("bf16_mixed", sizes, rows, context, steps);
  else {
    std::fprintf(stderr, "step_kernels: must be fp32 or bf16_mixed; given '%s'\n", argv[1]);
    return 2;
  }
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "step_kernels: %s\n", problem.what());
  return 1;
}
