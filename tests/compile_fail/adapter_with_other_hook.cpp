// says: xtrain recipe: the adapter's hooks must be tags of adapters
// says: xtrain recipe: 'can_be_switched_off', 'quantizes_weights' and 'stores_blocks' must be tags
// says: xtrain recipe: 'on_weights_loaded(store, stream)' must be both
// says: xtrain recipe: 'works_on_rows()' must be both
// says: xtrain recipe: 'adds_nothing()' must be both
// says: xtrain recipe: 'trains_bias(module, is_linear)' must be both
#include <xtrain/adapt/none.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

struct my_adapter : xtrain::no_adapter {
#ifdef MISTAKE
  using hooks = xtrain::hooks<xtrain::hook::adds_nothing, xtrain::hook::works_on_rows, xtrain::hook::on_weights_loaded, xtrain::hook::upload>;
  static constexpr bool can_be_switched_off = true;  // a tag
  template <class Store, class Stream>
  static void on_weight_loaded(const Store&, Stream&) {}  // listed, and has another name
  struct config : xtrain::no_adapter::config {
    bool trains_bias(const std::string&, bool) const { return false; }  // not listed
  };
  template <class Recipe>
  struct on_linear : xtrain::no_adapter::on_linear<Recipe> {
   private:
    using xtrain::no_adapter::on_linear<Recipe>::works_on_rows;
    using xtrain::no_adapter::on_linear<Recipe>::adds_nothing;
  };
#else
  using hooks = xtrain::hooks<xtrain::hook::adds_nothing, xtrain::hook::works_on_rows, xtrain::hook::on_weights_loaded, xtrain::hook::trains_bias>;
  template <class Store, class Stream>
  static void on_weights_loaded(const Store&, Stream&) {}
  struct config : xtrain::no_adapter::config {
    bool trains_bias(const std::string&, bool) const { return false; }
  };
#endif
};
struct recipe : xtrain::defaults {
  using adapter = my_adapter;
};
std::size_t size() { return sizeof(xtrain::llama<recipe>); }
