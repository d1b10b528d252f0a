// A custom optimizer policy: its settings, its state, and its kernel. It works with every model, dtype
// and device of the library.
//
//   own_policy [text file]
#include <cmath>
#include <cstdio>
#include <string_view>

#include <xtrain/xtrain.hpp>

/// Lion: the sign of an interpolated momentum.                       [Chen et al. 2023, algorithm 2]
///   u = sign(beta1·m + (1−beta1)·g),   m = beta2·m + (1−beta2)·g
///   w = w − learning_rate·(u + weight_decay·w)
///   gradient_n    read
///   master_n      updated   empty when the parameters themselves are the master copy
///   parameter_n   updated   w rounded to nearest
///   m_n           updated
/// A kernel is a plain value, so the dry device can count it and a stream can queue it.
template <class Memory, class P, class G, class M, class S>
struct lion_kernel {
  static constexpr std::string_view name = "lion";
  template <class To>
  using on = lion_kernel<To, P, G, M, S>;

  std::size_t n = 0;
  double learning_rate = 0, beta1 = 0, beta2 = 0, weight_decay = 0, gradient_scale = 1;
  xtrain::kernel::read<G, Memory> gradient_n{};
  xtrain::kernel::updated<M, Memory> master_n{};
  xtrain::kernel::updated<P, Memory> parameter_n{};
  xtrain::kernel::updated<S, Memory> m_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.learning_rate, s.beta1, s.beta2, s.weight_decay, s.gradient_scale, s.gradient_n, s.master_n, s.parameter_n, s.m_n);
  }
  [[nodiscard]] constexpr double operations() const { return 9.0 * static_cast<double>(n); }
};

/// Runs it on any device with host-addressable memory. A device of another kind would have an overload for its stream.
template <class Stream, class P, class G, class M, class S>
void run_kernel(Stream&, const lion_kernel<xtrain::host_memory, P, G, M, S>& k, xtrain::scratch_span<xtrain::host_memory>) {
  for (std::size_t i = 0; i < k.n; ++i) {
    const double g = k.gradient_scale * static_cast<double>(k.gradient_n.raw()[i]), m = static_cast<double>(k.m_n.raw()[i]);
    double weight = static_cast<double>(k.master_n.empty() ? static_cast<M>(k.parameter_n.raw()[i]) : k.master_n.raw()[i]);
    const double u = k.beta1 * m + (1.0 - k.beta1) * g;
    weight -= k.learning_rate * (static_cast<double>(u > 0) - static_cast<double>(u < 0) + k.weight_decay * weight);
    k.m_n.raw()[i] = static_cast<S>(k.beta2 * m + (1.0 - k.beta2) * g);
    k.parameter_n.raw()[i] = static_cast<P>(weight);
    if (!k.master_n.empty()) k.master_n.raw()[i] = static_cast<M>(weight);
  }
}

/// The policy. Its state is half of adamw's; its updates have constant magnitude, so learning rates are lower.
struct lion {
  static constexpr std::string_view name = "lion";

  struct config {
    double beta1 = 0.9, beta2 = 0.99;
    double weight_decay = 0.1;  ///< for matrices
  };

  template <class Device, class Precision>
  class state {
   public:
    using dtype = typename Precision::state;

    state(const config& settings, xtrain::execution<Device>& on, const xtrain::parameter_store<Device, Precision>& store)
        : settings_(settings), master_(on, store),
          m_(store.device(), store.stepped() * sizeof(dtype), xtrain::memory_role::optimizer) {
      xtrain::fill_zero(on.stream, m_.template as<dtype>());
    }

    void step(xtrain::execution<Device>& on, const xtrain::parameter_store<Device, Precision>& store, const xtrain::optimizer_step& how) {
      for (const xtrain::decay_run& run : store.decay_runs()) {  // matrices decay, vectors do not
        const std::size_t n = run.size();
        xtrain::ops::launch(on, lion_kernel<typename Device::memory, typename Precision::parameter, typename Precision::gradient,
                                            typename Precision::master, dtype>{.n = n,
                                                                                .learning_rate = how.learning_rate,
                                                                                .beta1 = settings_.beta1,
                                                                                .beta2 = settings_.beta2,
                                                                                .weight_decay = run.decays ? settings_.weight_decay : 0.0,
                                                                                .gradient_scale = how.gradient_scale,
                                                                                .gradient_n = store.gradients_of(run),
                                                                                .master_n = master_.of(run),
                                                                                .parameter_n = store.values_of(run),
                                                                                .m_n = m_.template as<dtype>().subspan(run.kept, n)});
      }
    }

    /// Visits every array that a checkpoint must contain.
    template <class Visit>
    void visit(Visit&& visit) const {
      if constexpr (xtrain::has_master_copy<Precision>) visit("master", master_.span());
      visit("m", m_.template as<dtype>());
    }

   private:
    config settings_;
    xtrain::master_copy<Device, Precision> master_;
    xtrain::buffer<Device> m_;
  };
};
static_assert(xtrain::optimizer<lion>);

struct with_lion : xtrain::defaults {
  using optimizer = lion;
};

/// Trains the same small model with one optimizer; returns the final loss.
template <class Recipe>
double train(const xtrain::dataset& data, std::size_t vocabulary, double learning_rate) {
  xtrain::llama<Recipe> model({.vocab_size = vocabulary, .hidden_size = 64, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 64});
  xtrain::trainer trainer(model, {.max_steps = 100, .micro_batch_size = 4, .learning_rate = learning_rate});
  trainer.fit(data);
  const std::size_t state = model.context().memory().peak_of(xtrain::memory_role::optimizer);
  const double loss = trainer.evaluate(data).loss;
  std::printf("%-6s loss %.3f, %s of optimizer state\n", Recipe::optimizer::name.data(), loss, xtrain::bytes_text(state).c_str());
  return loss;
}

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view(argv[1]) == "--help") return std::puts("usage: own_policy [text file]"), 0;
  const auto tokenizer = xtrain::byte_tokenizer();
  const auto data = xtrain::text_dataset(argc > 1 ? argv[1] : __FILE__, tokenizer);
  train<xtrain::defaults>(data, tokenizer.vocab_size(), 3e-3);
  train<with_lion>(data, tokenizer.vocab_size(), 1e-3);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "own_policy: %s\n", problem.what());
  return 1;
}
