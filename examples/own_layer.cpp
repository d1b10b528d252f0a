// A layer of your own: its kernel, its forward and backward, the proof that they belong together, and a model made with it.
//
//   own_layer [text file]
#include <cmath>
#include <cstdio>

#include <xtrain/testing/check_gradient.hpp>
#include <xtrain/xtrain.hpp>

// Dynamic tanh, a layer that stands where a normalisation stood.       [Zhu et al. 2025, "Transformers without normalization"]
//   y = weight · tanh(alpha·x) + bias,  weight and bias per channel, one alpha for all

/// x_nc, weight_c, bias_c, alpha_1 read; y_nc written, computed in accumulate and rounded once.
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

// Both run on any device whose memory the host can reach: the cpu, and the reference that gradients are checked with.

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
  for (std::size_t j = 0; j < k.c; ++j) {  // a channel at a time: its sums are rounded once
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

/// The layer. It stands where models have a normalisation, so it has the interface of one.
template <class Recipe>
class dynamic_tanh {
 public:
  using compute = typename xtrain::pass<Recipe>::compute;
  using gradient = typename xtrain::pass<Recipe>::gradient_type;
  using memory = typename xtrain::pass<Recipe>::memory;

  dynamic_tanh(xtrain::builder<Recipe>& build, const std::string& name, std::size_t channels, double /*epsilon*/)
      : weight_(build.vector({{name, channels}}, "weight", 1.0)), bias_(build.vector({{name, channels}}, "bias", 0.0)),
        alpha_(build.vector({{name, 1}}, "alpha", 0.5)) {}

  /// x [n, c] read, y [n, c] written. Nothing is kept: the backward has x.
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
  /// The same y again, on the way back.
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

/// LLaMA without normalisation: everything else is inherited.
struct norm_free_family : xtrain::llama_family {
  template <class Recipe>
  using norm = dynamic_tanh<Recipe>;
};
template <class Recipe>
using norm_free_llama = xtrain::decoder<Recipe, norm_free_family>;

int main(int argc, char** argv) try {
  // every derivative against a difference quotient, in double
  const auto report = xtrain::testing::check_gradient(
      {.inputs = 5, .outputs = 5}, [](auto& build) { return dynamic_tanh<xtrain::testing::gradient_recipe>(build, "norm", 5, 0.0); },
      [](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, x, y); },
      [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx); });
  std::printf("%zu derivatives checked, largest error %.1e\n", report.checked, report.largest_error);
  if (!report) throw xtrain::error(report.problem);

  const auto tokenizer = xtrain::byte_tokenizer();
  const auto data = xtrain::text_dataset(argc > 1 ? argv[1] : __FILE__, tokenizer);
  norm_free_llama<xtrain::defaults> model({.vocabulary = tokenizer.vocabulary(), .width = 64, .layers = 2, .heads = 4, .context = 64});
  xtrain::trainer trainer(model, {.steps = 100, .batch = 4, .learning_rate = 3e-3});
  const double before = trainer.evaluate(data).loss;
  trainer.fit(data);
  std::printf("loss %.3f, after training %.3f\n", before, trainer.evaluate(data).loss);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "own_layer: %s\n", problem.what());
  return 1;
}
