// says: xtrain recipe: 'balances_experts' is the name of the objective's optional member
// says: xtrain recipe: 'can_be_captured' is the name of the objective's optional member
// says: xtrain recipe: 'scores_sequences' is the name of the objective's optional member
// says: xtrain recipe: 'is_cross_entropy' is the name of an optional member of the objective's state
// says: xtrain recipe: 'upload' is the name of an optional member of the objective's state
// says: xtrain recipe: 'upload' of the objective's state must take (stream, batch, micro_batch)
// says: xtrain recipe: the objective must have at most four statistics
#include <xtrain/models/llama.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/train/trainer.hpp>

struct my_objective : xtrain::next_token {
#ifdef MISTAKE
  static constexpr bool balance_experts = false;
  static constexpr bool can_capture = true;
  static constexpr bool score_sequences = false;
  static constexpr std::array<std::string_view, 5> statistics{"a", "b", "c", "d", "e"};
#else
  static constexpr bool balances_experts = false;
  static constexpr bool can_be_captured = true;
  static constexpr bool scores_sequences = false;
  static constexpr std::array<std::string_view, 4> statistics{"a", "b", "c", "d"};
#endif
  template <class Recipe>
  struct state : xtrain::next_token::state<Recipe> {
    using xtrain::next_token::state<Recipe>::state;
#ifdef MISTAKE
    static constexpr bool cross_entropy = true;
    void upload_batch() {}
    template <class Stream>
    void upload(Stream&, const xtrain::batch_view&) {}
#else
    static constexpr bool is_cross_entropy = true;
    double cross_entropy = 0.0;  // not a constant
    template <class Stream>
    void upload(Stream&, const xtrain::batch_view&, std::size_t) {
      load_batch();
    }
    void load_batch() {}
#endif
  };
};
struct recipe : xtrain::defaults {
  using objective = my_objective;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
