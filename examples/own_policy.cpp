// A custom optimizer policy: its settings, its state, and its kernel. It works with every model, dtype
// and device of the library.
//
//   own_policy [text file]
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string_view>

#include <xtrain/xtrain.hpp>

/// AdaGrad: the learning rate of each weight falls with the gradients it has seen.      [Duchi et al. 2011, section 1.1, diagonal]
///   g = gradient · gradient_scale,   sum = sum + g²
///   w = w − learning_rate·g / (sqrt(sum) + epsilon)
///   scalars_1     read      what the step is given in device memory; where `applies` is 0, nothing changes
///   gradient_n    read
///   master_n      updated   empty when the parameters themselves are the master copy
///   parameter_n   updated   w rounded to nearest
///   sum_n         updated
/// A kernel is a plain value, so the dry device can count it and a stream can queue it.
template <class Memory, class P, class G, class M, class S>
struct adagrad_kernel {
  static constexpr std::string_view name = "adagrad";
  template <class To>
  using on = adagrad_kernel<To, P, G, M, S>;

  std::size_t n = 0;
  double epsilon = 0;
  xtrain::kernel::read<xtrain::kernel::step_scalars, Memory> scalars_1{};
  xtrain::kernel::read<G, Memory> gradient_n{};
  xtrain::kernel::updated<M, Memory> master_n{};
  xtrain::kernel::updated<P, Memory> parameter_n{};
  xtrain::kernel::updated<S, Memory> sum_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.epsilon, s.scalars_1, s.gradient_n, s.master_n, s.parameter_n, s.sum_n);
  }
  [[nodiscard]] constexpr double operations() const { return 8.0 * static_cast<double>(n); }
};

/// For any device with host-addressable memory. Other devices need an overload for their stream.
template <class Stream, class P, class G, class M, class S>
void run_kernel(Stream&, const adagrad_kernel<xtrain::host_memory, P, G, M, S>& k, xtrain::scratch_span<xtrain::host_memory>) {
  const xtrain::kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  for (std::size_t i = 0; i < k.n; ++i) {
    const double g = scalars.gradient_scale * static_cast<double>(k.gradient_n.raw()[i]);
    const double sum = static_cast<double>(k.sum_n.raw()[i]) + g * g;
    double weight = static_cast<double>(k.master_n.empty() ? static_cast<M>(k.parameter_n.raw()[i]) : k.master_n.raw()[i]);
    weight -= scalars.learning_rate * g / (std::sqrt(sum) + k.epsilon);
    k.sum_n.raw()[i] = static_cast<S>(sum);
    k.parameter_n.raw()[i] = static_cast<P>(weight);
    if (!k.master_n.empty()) k.master_n.raw()[i] = static_cast<M>(weight);
  }
}

/// The policy. Its state is half of adamw's.
struct adagrad {
  static constexpr std::string_view name = "adagrad";
  using hooks = xtrain::hooks<>;  // its optional members

  struct config {
    double epsilon = 1e-10;

    /// Checkpoints contain these members: a resumed run reports what has changed.
    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "epsilon", .range = xtrain::setting_range::positive, .help = "added to the root of the sum"}, c.epsilon);
    }
  };

  template <class Device, class Precision>
  class state {
   public:
    using dtype = typename Precision::state;

    state(const config& settings, xtrain::execution<Device>& on, const xtrain::parameter_store<Device, Precision>& store)
        : settings_(settings), master_(on, store),
          sum_(store.device(), store.stepped() * sizeof(dtype), xtrain::memory_role::optimizer) {
      xtrain::fill_zero(on.stream, sum_.template as<dtype>());
    }

    void step(xtrain::execution<Device>& on, const xtrain::parameter_store<Device, Precision>& store,
              const xtrain::optimizer_step<Device>& step) {
      using kernel = adagrad_kernel<typename Device::memory, typename Precision::parameter, typename Precision::gradient,
                                    typename Precision::master, dtype>;
      for (const xtrain::parameter_slice& run : store.parameter_slices())  // ranges that this rank updates
        xtrain::ops::launch(on, kernel{.n = run.size(),
                                       .epsilon = settings_.epsilon,
                                       .scalars_1 = step.scalars,
                                       .gradient_n = store.gradients_of(run),
                                       .master_n = master_.of(run),
                                       .parameter_n = store.values_of(run),
                                       .sum_n = sum_.template as<dtype>().subspan(run.kept, run.size())});
    }

    /// Visits every array that a checkpoint must contain.
    template <class Visit>
    void visit(Visit&& visit) const {
      if constexpr (xtrain::has_master_copy<Precision>) visit("master", master_.span());
      visit("sum", sum_.template as<dtype>());
    }

   private:
    config settings_;
    xtrain::master_copy<Device, Precision> master_;
    xtrain::buffer<Device> sum_;
  };
};
static_assert(xtrain::optimizer<adagrad>);

struct with_adagrad : xtrain::defaults {
  using optimizer = adagrad;
};

/// Trains the same small model with one optimizer; returns the final loss.
template <class Recipe>
double train(const xtrain::dataset& data, std::size_t vocabulary, double learning_rate) {
  xtrain::llama<Recipe> model({.vocab_size = vocabulary, .hidden_size = 64, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 64});
  xtrain::trainer trainer(model, {.max_steps = 100, .micro_batch_size = 4, .learning_rate = learning_rate});
  trainer.fit(data);
  const std::size_t state = model.context().memory().peak_of(xtrain::memory_role::optimizer);
  const double loss = trainer.evaluate(data).loss;
  std::printf("%-7s loss %.3f, %s of optimizer state\n", Recipe::optimizer::name.data(), loss, xtrain::bytes_text(state).c_str());
  return loss;
}

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view(argv[1]) == "--help") return std::puts("usage: own_policy [text file]"), 0;
  const auto tokenizer = xtrain::byte_tokenizer();
  const auto data = xtrain::text_dataset(argc > 1 ? argv[1] : __FILE__, tokenizer);
  train<xtrain::defaults>(data, tokenizer.vocab_size(), 3e-3);
  train<with_adagrad>(data, tokenizer.vocab_size(), 1e-2);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "own_policy: %s\n", problem.what());
  return 1;
}
