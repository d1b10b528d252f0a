// says: xtrain recipe: the objective's hooks must be tags of objectives
// says: xtrain recipe: 'can_be_captured', 'scores_sequences' and 'averages_tokens' must be tags
// says: xtrain recipe: 'balances_experts' must be both
// says: xtrain recipe: 'log_prob_temperature(config)' must be both
// says: xtrain recipe: 'reported(means)' must be both
// says: xtrain recipe: 'require_model(model)' must be both
// says: xtrain recipe: 'is_cross_entropy' must be both
// says: xtrain recipe: 'upload(stream, batch, micro_batch)' must be both
// says: xtrain recipe: 'reference_b(micro_batch, sequences)' must be both
// says: xtrain recipe: 'use_teacher(source)', with has_teacher() and teach(stream, batch, micro_batch), must be both
// says: xtrain recipe: the objective must have at most four statistics
// says: xtrain recipe: 'has_reference' and 'has_labels' must be the tags 'reference_b' and 'upload'
#include <xtrain/models/llama.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/objective/orpo.hpp>
#include <xtrain/train/trainer.hpp>

struct my_objective : xtrain::next_token {
  using means = std::array<double, 4>;
#ifdef MISTAKE
  using hooks = xtrain::hooks<xtrain::hook::is_cross_entropy, xtrain::hook::balances_experts, xtrain::hook::log_prob_temperature, xtrain::hook::upload,
                              xtrain::hook::reference_b, xtrain::hook::layout_alignment>;
  static constexpr bool can_be_captured = true;     // a tag
  static constexpr bool balance_experts = false;    // listed, and has another name
  static double log_prob_temperature() { return 1.0; }  // takes something else
  static means reported(const means& all) { return all; }  // not listed
  template <class Model>
  static void require_model(const Model&) {}
  static constexpr std::array<std::string_view, 5> statistics{"a", "b", "c", "d", "e"};
#else
  using hooks = xtrain::hooks<xtrain::hook::is_cross_entropy, xtrain::hook::balances_experts, xtrain::hook::log_prob_temperature, xtrain::hook::reported,
                              xtrain::hook::require_model, xtrain::hook::upload, xtrain::hook::can_be_captured>;
  static constexpr bool balances_experts = false;
  static double log_prob_temperature(const config&) { return 1.0; }
  static means reported(const means& all) { return all; }
  template <class Model>
  static void require_model(const Model&) {}
  static constexpr std::array<std::string_view, 4> statistics{"a", "b", "c", "d"};
#endif
#ifdef MISTAKE
  template <class Recipe>
  struct state {
    state(const config&, const typename Recipe::device::context&, const xtrain::objective_sizes&) {}
    void prepare(xtrain::pass<Recipe>&, std::size_t) {}
    static constexpr bool cross_entropy = true;
    template <class Stream>
    void upload(Stream&, const xtrain::batch_view&) {}
    template <class Stream>
    void upload_batch(Stream&, const xtrain::batch_view&, std::size_t) {}
    void use_teacher(const void*) {}
    bool has_teacher() const { return false; }
    template <class Stream>
    void teach(Stream&, const xtrain::batch_view&, std::size_t) {}
  };
#else
  template <class Recipe>
  struct state : xtrain::next_token::state<Recipe> {
    using xtrain::next_token::state<Recipe>::state;
    template <class Stream>
    void upload(Stream&, const xtrain::batch_view&, std::size_t) {}
  };
#endif
};
struct recipe : xtrain::defaults {
  using objective = my_objective;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }

struct my_pairs : xtrain::orpo {
#ifdef MISTAKE
  static constexpr bool has_reference = false, has_labels = true;
#endif
};
std::size_t size_of_state() { return sizeof(xtrain::sequence_objective<xtrain::computation_of<recipe>, my_pairs>); }
