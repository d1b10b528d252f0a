// A custom layer: its kernel, forward and backward, gradient checks, and a model that uses it.
//
//   own_layer [text file] [--ranks N] [--strategy single|tensor|sequence] [--max-steps N]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>

#include <xtrain/parallel.hpp>
#include <xtrain/testing/check_gradient.hpp>
#include <xtrain/testing/check_on_ranks.hpp>
#include <xtrain/xtrain.hpp>

// Dynamic tanh, a replacement for normalization layers.                [Zhu et al. 2025, "Transformers without normalization"]
//   y = weight · tanh(alpha·x) + bias,  weight and bias per channel, one alpha for all

/// Reads x_nc, weight_c, bias_c, alpha_1; writes y_nc, computed in accumulate and rounded once.
template <class Memory, class T>
struct dynamic_tanh_kernel {
  static constexpr std::string_view name = "dynamic_tanh";
  template <class To>
  using on = dynamic_tanh_kernel<To, T>;

  std::size_t n = 0, c = 0;
  xtrain::kernel::read<T, Memory> x_nc{}, weight_c{}, bias_c{}, alpha_1{};
  xtrain::kernel::written<T, Memory> y_nc{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.x_nc, s.weight_c, s.bias_c, s.alpha_1, s.y_nc);
  }
  [[nodiscard]] constexpr double operations() const { return 8.0 * static_cast<double>(n) * static_cast<double>(c); }
};

/// With s = tanh(alpha·x) and g = dy · weight · (1 − s²):
///   dx += g · alpha,  dalpha += Σ g·x,  dweight += Σ over rows of dy · s,  dbias += Σ over rows of dy
template <class Memory, class T, class G>
struct dynamic_tanh_backward_kernel {
  static constexpr std::string_view name = "dynamic_tanh_backward";
  template <class To>
  using on = dynamic_tanh_backward_kernel<To, T, G>;

  std::size_t n = 0, c = 0;
  xtrain::kernel::read<T, Memory> x_nc{}, weight_c{}, alpha_1{}, dy_nc{};
  xtrain::kernel::updated<T, Memory> dx_nc{};
  xtrain::kernel::updated<G, Memory> dweight_c{}, dbias_c{}, dalpha_1{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.x_nc, s.weight_c, s.alpha_1, s.dy_nc, s.dx_nc, s.dweight_c, s.dbias_c, s.dalpha_1);
  }
  [[nodiscard]] constexpr double operations() const { return 16.0 * static_cast<double>(n) * static_cast<double>(c); }
};

// Both run on any device with host-addressable memory: the cpu, and the gradient check's reference device.

template <class Stream, class T>
void run_kernel(Stream&, const dynamic_tanh_kernel<xtrain::host_memory, T>& k, xtrain::scratch_span<xtrain::host_memory>) {
  using A = xtrain::accumulate_t<T>;
  const A alpha = static_cast<A>(k.alpha_1.raw()[0]);
  for (std::size_t i = 0; i < k.n * k.c; ++i) {
    const A weight = static_cast<A>(k.weight_c.raw()[i % k.c]), bias = static_cast<A>(k.bias_c.raw()[i % k.c]);
    k.y_nc.raw()[i] = static_cast<T>(weight * std::tanh(alpha * static_cast<A>(k.x_nc.raw()[i])) + bias);
  }
}

template <class Stream, class T, class G>
void run_kernel(Stream&, const dynamic_tanh_backward_kernel<xtrain::host_memory, T, G>& k, xtrain::scratch_span<xtrain::host_memory>) {
  using A = xtrain::accumulate_t<T>;
  const A alpha = static_cast<A>(k.alpha_1.raw()[0]);
  A dalpha{0};
  for (std::size_t j = 0; j < k.c; ++j) {  // one channel at a time: its sums are rounded once
    A dweight{0}, dbias{0};
    for (std::size_t i = j; i < k.n * k.c; i += k.c) {
      const A x = static_cast<A>(k.x_nc.raw()[i]), dy = static_cast<A>(k.dy_nc.raw()[i]), s = std::tanh(alpha * x);
      const A g = dy * static_cast<A>(k.weight_c.raw()[j]) * (A{1} - s * s);
      k.dx_nc.raw()[i] = static_cast<T>(static_cast<A>(k.dx_nc.raw()[i]) + g * alpha);
      dalpha += g * x;
      dweight += dy * s;
      dbias += dy;
    }
    if (k.dweight_c.empty()) continue;  // frozen
    k.dweight_c.raw()[j] = static_cast<G>(static_cast<A>(k.dweight_c.raw()[j]) + dweight);
    k.dbias_c.raw()[j] = static_cast<G>(static_cast<A>(k.dbias_c.raw()[j]) + dbias);
  }
  if (!k.dalpha_1.empty()) k.dalpha_1.raw()[0] = static_cast<G>(static_cast<A>(k.dalpha_1.raw()[0]) + dalpha);
}

/// The layer has a norm's interface: it replaces norms in models.
template <class Recipe>
class dynamic_tanh {
 public:
  using compute = typename xtrain::pass<Recipe>::compute;
  using gradient = typename xtrain::pass<Recipe>::gradient_type;
  using memory = typename xtrain::pass<Recipe>::memory;

  dynamic_tanh(xtrain::builder<Recipe>& build, const std::string& name, std::size_t channels, double /*epsilon*/)
      : weight_(build.vector({{name, channels}}, "weight", 1.0)), bias_(build.vector({{name, channels}}, "bias", 0.0)),
        alpha_(build.vector({{name, 1}}, "alpha", 0.5)) {}

  /// x [n, c] read, y [n, c] written. Nothing is saved: the backward has x.
  void forward(xtrain::pass<Recipe>& p, xtrain::matrix_view<const compute, memory> x, xtrain::matrix_view<compute, memory> y) const {
    xtrain::require_shape("dynamic_tanh: y", y.shape(), x.shape());
    xtrain::ops::launch(p, dynamic_tanh_kernel<memory, compute>{.n = x.shape(0),
                                                                .c = x.shape(1),
                                                                .x_nc = x.span(),
                                                                .weight_c = p.vector(weight_).span(),
                                                                .bias_c = p.vector(bias_).span(),
                                                                .alpha_1 = p.vector(alpha_).span(),
                                                                .y_nc = y.span()});
  }
  /// Computes y again in the backward pass.
  void recompute(xtrain::pass<Recipe>& p, xtrain::matrix_view<const compute, memory> x, xtrain::matrix_view<compute, memory> y) const {
    forward(p, x, y);
  }
  /// dx [n, c] added to.
  void backward(xtrain::pass<Recipe>& p, xtrain::matrix_view<const compute, memory> x, xtrain::matrix_view<const compute, memory> dy,
                xtrain::matrix_view<compute, memory> dx) const {
    xtrain::ops::launch(p, dynamic_tanh_backward_kernel<memory, compute, gradient>{.n = x.shape(0),
                                                                                   .c = x.shape(1),
                                                                                   .x_nc = x.span(),
                                                                                   .weight_c = p.vector(weight_).span(),
                                                                                   .alpha_1 = p.vector(alpha_).span(),
                                                                                   .dy_nc = dy.span(),
                                                                                   .dx_nc = dx.span(),
                                                                                   .dweight_c = p.vector_gradient(weight_).extent(),
                                                                                   .dbias_c = p.vector_gradient(bias_).extent(),
                                                                                   .dalpha_1 = p.vector_gradient(alpha_).extent()});
  }

 private:
  xtrain::parameter weight_, bias_, alpha_;
};

/// LLaMA without normalization.
struct norm_free_family : xtrain::llama_family {
  template <class Recipe>
  using norm = dynamic_tanh<Recipe>;
};
template <class Recipe>
using norm_free_llama = xtrain::decoder<Recipe, norm_free_family>;

/// For any strategy: the layer's weights are replicated, so it needs no code for ranks.
template <class Strategy>
struct recipe_on : xtrain::defaults {
  using parallel = Strategy;
};

struct settings {
  std::string text = __FILE__, strategy = "single";
  std::size_t ranks = 1, steps = 100;
};

/// Checks every derivative against a difference quotient, in double, and two ranks against one device.
void prove() {
  const auto forward = [](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, x, y); };
  const auto backward = [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx); };
  const auto make = [](auto& build) { return dynamic_tanh<xtrain::testing::recipe_of<decltype(build)>>(build, "norm", 5, 0.0); };
  const xtrain::testing::gradient_check shape{.inputs = 5, .outputs = 5};
  const auto report = xtrain::testing::check_gradient(shape, make, forward, backward);
  std::printf("%zu derivatives checked, largest error %.1e\n", report.checked, report.largest_error);
  if (!report) throw xtrain::error(report.problem);
  const auto whole = xtrain::testing::check_on_ranks<xtrain::tensor_parallel>(shape, 2, make, forward, backward);
  if (!whole) throw xtrain::error(whole.problem);
  const auto cut = xtrain::testing::check_on_ranks<xtrain::sequence_parallel>(shape, 2, make, forward, backward);
  if (!cut) throw xtrain::error(cut.problem);
  std::printf("tensor and sequence parallel on 2 ranks: equal to one device\n");
}

struct print_losses : xtrain::observer {
  using observer::on;
  void on(const xtrain::step_done& done) override { std::printf("step %zu loss %.6f\n", done.step, done.loss); }
};

template <class Strategy>
void train(const settings& chosen, const std::shared_ptr<xtrain::transport>& ranks) {
  const auto tokenizer = xtrain::byte_tokenizer();
  const auto data = xtrain::text_dataset(chosen.text, tokenizer);
  typename norm_free_llama<recipe_on<Strategy>>::options options;
  if constexpr (!std::is_same_v<Strategy, xtrain::single>) options.parallel = {.ranks = ranks, .tensor_parallel_size = chosen.ranks};
  norm_free_llama<recipe_on<Strategy>> model(
      {.vocab_size = tokenizer.vocab_size(), .hidden_size = 64, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 64}, {},
      options);
  xtrain::trainer trainer(model, {.max_steps = chosen.steps, .micro_batch_size = 4, .learning_rate = 3e-3});
  const bool first = !ranks || ranks->rank() == 0;
  print_losses losses;
  if (first) trainer.attach(losses);
  const double before = trainer.evaluate(data).loss;
  trainer.fit(data);
  const double after = trainer.evaluate(data).loss;
  if (first) std::printf("loss %.3f, after training %.3f\n", before, after);
}

constexpr const char* usage = "usage: own_layer [text file] [--ranks N] [--strategy single|tensor|sequence] [--max-steps N]";

settings parse(int argc, char** argv) {
  settings chosen;
  const auto count = [](const std::string& flag, const char* text) {
    char* end = nullptr;
    const unsigned long value = std::strtoul(text, &end, 10);
    xtrain::require<xtrain::config_error>(*end == '\0' && value > 0 && value <= 1000000, flag, " must be between 1 and 1000000; given ", text);
    return std::size_t{value};
  };
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (!flag.starts_with("--")) {
      chosen.text = flag;
      continue;
    }
    xtrain::require<xtrain::config_error>(flag == "--ranks" || flag == "--strategy" || flag == "--max-steps", "there is no ", flag, "; ", usage);
    xtrain::require<xtrain::config_error>(i + 1 < argc, flag, " must be followed by a value");
    const char* value = argv[++i];
    if (flag == "--ranks") chosen.ranks = count(flag, value);
    else if (flag == "--max-steps") chosen.steps = count(flag, value);
    else chosen.strategy = value;
  }
  xtrain::require<xtrain::config_error>(chosen.strategy == "single" || chosen.strategy == "tensor" || chosen.strategy == "sequence",
                                        "--strategy must be single, tensor or sequence; given ", chosen.strategy);
  xtrain::require<xtrain::config_error>(chosen.strategy != "single" || chosen.ranks == 1, "--ranks must be 1 with --strategy single; given ",
                                        chosen.ranks);
  return chosen;
}

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view(argv[1]) == "--help") return std::puts(usage), 0;
  const settings chosen = parse(argc, argv);
  prove();
  if (chosen.strategy == "single") return train<xtrain::single>(chosen, nullptr), 0;
  xtrain::run_ranks(chosen.ranks, [&](const std::shared_ptr<xtrain::transport>& ranks) {
    if (chosen.strategy == "tensor") train<xtrain::tensor_parallel>(chosen, ranks);
    else train<xtrain::sequence_parallel>(chosen, ranks);
  });
} catch (const xtrain::config_error& problem) {
  std::fprintf(stderr, "own_layer: %s\n", problem.what());
  return 2;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "own_layer: %s\n", problem.what());
  return 1;
}
