// says: xtrain recipe: the objective's hooks must be tags of objectives
// says: xtrain recipe: 'can_be_captured', 'scores_sequences', 'averages_tokens', 'uses_reference', 'uses_teacher' and 'reads_labels' must be tags
// says: xtrain recipe: 'balances_experts' must be both
// says: xtrain recipe: 'log_prob_temperature(config)' must be both
// says: xtrain recipe: 'reported(means)' must be both
// says: xtrain recipe: 'require_model(model)' must be both
// says: xtrain recipe: 'is_cross_entropy' must be both
// says: xtrain recipe: 'upload(stream, data)' must be both
// says: xtrain recipe: 'upload_batch' of the objective's state is no hook; did you mean the hook 'upload'?
// says: xtrain recipe: an objective with the hook 'uses_reference', 'uses_teacher' or 'reads_labels' must have 'upload(stream, data)'
// says: xtrain recipe: the objective must have at most four statistics
// says: xtrain recipe: 'has_reference' and 'has_labels' must be the tags 'uses_reference' and 'reads_labels'
#include <xtrain/models/llama.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/objective/orpo.hpp>
#include <xtrain/train/trainer.hpp>

struct my_objective : xtrain::next_token {
  using means = std::array<double, 4>;
#ifdef MISTAKE
  using hooks = xtrain::hooks<xtrain::hook::is_cross_entropy, xtrain::hook::balances_experts, xtrain::hook::log_prob_temperature,
                              xtrain::hook::uses_reference, xtrain::hook::layout_alignment>;
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
    void upload(Stream&, const xtrain::batch_view&, std::size_t) {}  // not listed, and takes something else
    template <class Stream, class Data>
    void upload_batch(Stream&, const Data&) {}  // not listed, and has another name
  };
#else
  template <class Recipe>
  struct state : xtrain::next_token::state<Recipe> {
    using xtrain::next_token::state<Recipe>::state;
    template <class Stream, class Data>
    void upload(Stream&, const Data&) {}
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
