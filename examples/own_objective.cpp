// A custom objective: answers are ranked by their mean log-probability per token, with a margin between a good and a bad one. Its kernel turns
// log-probabilities of sequences into a loss and its derivative; heads, gradients and parallel strategies are the library's.
//
//   own_objective
#include <array>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include <xtrain/xtrain.hpp>

/// Sequences 2i (good) and 2i + 1 (bad) are a pair:
///   gap_i = logp_2i / count_2i − logp_2i+1 / count_2i+1,   loss_i = max(0, margin − gap_i)       [Zhao et al. 2023, "SLiC-HF", eq. 1]
///   logp_b, count_b      read      log-probability and number of targets of each sequence
///   loss_p, dlogp_b      written   and ∂loss / ∂logp
/// A pair without targets is padding: loss 0.
template <class Memory>
struct ranking_loss {
  static constexpr std::string_view name = "ranking_loss";
  template <class To>
  using on = ranking_loss<To>;

  std::size_t pairs = 0;
  double margin = 1.0;
  xtrain::kernel::read<double, Memory> logp_b{}, count_b{};
  xtrain::kernel::written<double, Memory> loss_p{}, dlogp_b{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.pairs, s.margin, s.logp_b, s.count_b, s.loss_p, s.dlogp_b);
  }
  [[nodiscard]] constexpr double operations() const { return 8.0 * static_cast<double>(pairs); }
};

/// For any device with host-addressable memory. Other devices need an overload for their stream.
template <class Stream>
void run_kernel(Stream&, const ranking_loss<xtrain::host_memory>& k, xtrain::scratch_span<xtrain::host_memory>) {
  for (std::size_t i = 0; i < k.pairs; ++i) {
    const double* logp = k.logp_b.raw() + 2 * i;
    const double* count = k.count_b.raw() + 2 * i;
    const bool is_pair = count[0] > 0 && count[1] > 0;
    const double loss = is_pair ? k.margin - (logp[0] / count[0] - logp[1] / count[1]) : 0.0;
    k.loss_p.raw()[i] = loss > 0 ? loss : 0.0;
    k.dlogp_b.raw()[2 * i] = loss > 0 ? -1.0 / count[0] : 0.0;
    k.dlogp_b.raw()[2 * i + 1] = loss > 0 ? 1.0 / count[1] : 0.0;
  }
}

/// The policy.
struct ranking {
  static constexpr std::string_view name = "ranking";
  static constexpr std::size_t group_size = 2;  // of the dataset: pairs stay together
  static constexpr std::array<std::string_view, 0> statistics{};
  using hooks = xtrain::hooks<>;  // its optional members

  struct config {
    double margin = 1.0;

    /// Checkpoints contain these members: a resumed run reports what has changed.
    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "margin", .range = xtrain::setting_range::positive, .unit = "nats per token", .help = "margin between log-probabilities"}, c.margin);
    }
  };

  /// The mean is over pairs with targets, as in xtrain::dpo.
  [[nodiscard]] static double count_losses(const xtrain::batch_view& batch) { return xtrain::dpo::count_losses(batch); }
  static void require_batch(const config& settings, const xtrain::batch_view& batch) {
    xtrain::require_ranges(name, settings);
    xtrain::dpo::require_batch({}, batch);
  }
  [[nodiscard]] static xtrain::reference_use reference(const config&) { return xtrain::reference_use::none; }

  template <class Recipe>
  class state final : public xtrain::pass_objective<Recipe> {
   public:
    using memory = typename Recipe::device::memory;
    using head_pass = xtrain::head_pass<Recipe>;

    template <class Context>
    state(const config& settings, const Context&, const xtrain::objective_sizes&) : settings_(settings) {}
    void prepare(xtrain::pass<Recipe>& p, std::size_t) { p.internal.objective = this; }

    void compute(xtrain::pass<Recipe>& p, const head_pass& head, typename head_pass::sums loss_n) override {
      using value = typename head_pass::accumulate;
      const auto dx = p.trains() ? head.save_input_gradient(p) : xtrain::matrix_view<typename head_pass::compute, memory>{};
      const auto scope = p.scope();  // temporary memory until the end of this function
      const auto values = [&](std::size_t n) { return xtrain::vector_view<double, memory>{p.workspace.template take<double>(n), {n}}; };
      const std::size_t b = p.batch.b, n = loss_n.shape(0);
      const auto logp_b = values(b), count_b = values(b), dlogp_b = values(b), loss_p = values(b / 2);
      xtrain::sequence_log_probs(p, head, loss_n, logp_b, count_b);
      xtrain::ops::launch(p, ranking_loss<memory>{.pairs = b / 2,
                                                  .margin = settings_.margin,
                                                  .logp_b = logp_b.span(),
                                                  .count_b = count_b.span(),
                                                  .loss_p = loss_p.span(),
                                                  .dlogp_b = dlogp_b.span()});
      if (p.trains()) {
        const xtrain::vector_view<value, memory> weight_n{p.workspace.template take<value>(n), {n}};
        xtrain::ops::sequence_weights(p, p.batch.targets_n, head.vocab_size(), dlogp_b, weight_n);
        head.gradient(p, weight_n, loss_n, dx);
      }
      xtrain::ops::sequence_losses(p, loss_p, b, loss_n);
    }

   private:
    config settings_;
  };
};
static_assert(xtrain::objective<ranking>);

struct ranking_run : xtrain::defaults {
  using objective = ranking;
};

int main(int count, char** words) {
  if (count > 1) {
    const bool asks = std::string_view(words[1]) == "--help" || std::string_view(words[1]) == "-h";
    std::fprintf(asks ? stdout : stderr, "usage: own_objective [--help]\nTrains a small model with an objective written in this program.\n");
    return asks ? 0 : 2;
  }
  try {
    // a good answer counts up from the prompt, a bad one down
    xtrain::dataset pairs("counting", xtrain::sequence_layout::separate);
    pairs.group_size = 2;
    for (int first = 20; first < 84; ++first)
      for (const int by : {1, -1}) {
        std::vector<xtrain::token> tokens{first};
        for (int i = 1; i < 8; ++i) tokens.push_back(tokens.back() + by);
        pairs.add(tokens, [](std::size_t i) { return i > 0; });
      }
    pairs.finish();

    xtrain::llama<ranking_run> model({.vocab_size = 104, .hidden_size = 32, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 8});
    xtrain::trainer trainer(model, {.epochs = 6, .micro_batch_size = 16, .learning_rate = 3e-3, .objective = {.margin = 2.0}});
    std::printf("%s", xtrain::describe<ranking_run>().c_str());
    const double before = trainer.evaluate(pairs).loss;
    trainer.fit(pairs);
    std::printf("ranking loss: %.3f before, %.3f after %zu steps\n", before, trainer.evaluate(pairs).loss, trainer.progress().step);
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "own_objective: %s\n", problem.what());
    return 1;
  }
}
