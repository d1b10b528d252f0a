// LoRA: a trained low-rank update of chosen, frozen weights.
//                                                    [Hu et al. 2021, "LoRA: Low-rank adaptation of large language models"]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/adapt/dora.hpp>
#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/layers/tensor_shard.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// y += scale · dropout(x) · Aᵀ · Bᵀ for every chosen module; A [rank, in] initialized as in PEFT, B [out, rank] zero: training starts from the base model.
/// For an embedding, A has a column per index and starts at zero. Base weights have no gradients and no optimizer state.
struct lora {
  static constexpr std::string_view name = "lora";
  using hooks = xtrain::hooks<hook::can_be_switched_off, hook::stores_blocks, hook::on_weights_loaded, hook::on_table, hook::on_head, hook::drops_input,
                              hook::works_on_rows, hook::trains_bias, hook::adapts_table>;
  static constexpr bool freezes_weights = true;

  using config = lora_config;

  /// The parameter is the adapter's.
  [[nodiscard]] static bool is_own(std::string_view parameter) { return !lora_names::module_beside(parameter).empty(); }

  /// After base weights are set: DoRA magnitudes become row norms of the (dequantized) weights.
  template <class Store, class Stream>
  static void on_weights_loaded(const Store& store, Stream& stream) {
    using dtype = typename Store::parameter_type;
    for (const auto& m : store.entries()) {
      if (!m.spec.name.ends_with(lora_names::magnitude) || !m.is_here) continue;
      require<config_error>(!store.sharding().values, "lora: DoRA: all rows of a weight must be on this rank; zero<3> shards them among ranks; choose "
                            "zero<2>");
      const auto& weight = *store.find(module_of(m.spec.name) + ".weight");
      std::vector<dtype> w_oi(weight.size()), m_o(m.size());
      if (weight.spec.blocks) {
        const auto there = store.in_blocks(weight);
        std::vector<std::uint8_t> here(there.code.size());
        copy_to_host(stream, std::span(here), there.code);
        stream.synchronize();
        block_formats::dequantize<dtype>(there.format, here, w_oi);
      } else if (weight.spec.quantized) {
        const auto there = store.quantized(weight);
        nf4_array here;
        here.code_n2.resize(there.code_n2.size()), here.scale_k.resize(there.scale_k.size()), here.outer.resize(there.outer.size());
        copy_to_host(stream, std::span(here.code_n2), there.code_n2);
        copy_to_host(stream, std::span(here.scale_k), there.scale_k);
        copy_to_host(stream, std::span(here.outer), there.outer);
        stream.synchronize();
        nf4::dequantize<dtype>(here, w_oi);
      } else {
        copy_to_host(stream, std::span<dtype>(w_oi), store.value(weight));
        stream.synchronize();
      }
      const std::size_t inputs = weight.spec.shape[1];
      for (std::size_t o = 0; o < m_o.size(); ++o) {
        double squares = 0;
        for (std::size_t i = 0; i < inputs; ++i)
          squares += static_cast<double>(w_oi[o * inputs + i]) * static_cast<double>(w_oi[o * inputs + i]);
        m_o[o] = static_cast<dtype>(std::sqrt(squares));
      }
      store.write(stream, m, 0, m_o);
      stream.synchronize();
    }
  }

  /// Adapters of a linear layer's chosen modules.
  template <class Recipe>
  class on_linear {
   public:
    template <class Builder, class Parts, class Inputs>
    void declare(Builder& build, const Parts& parts, const Inputs& inputs) {
      const config& c = build.adapter();
      auto& store = build.parameters();
      dropout_ = c.dropout;
      first_input_ = inputs.first;
      whole_inputs_ = inputs.whole;
      std::size_t column = 0;
      for (const auto& part : parts) {
        if (const auto* names = c.parts_of(part.name); names != nullptr && c.adapts(part.name)) {
          declare_parts(build, part, inputs, *names, column);
        } else if (c.adapts(part.name)) {
          require<config_error>(!c.dora || inputs.whole == 0, "tensor: DoRA of '", part.name, "' must have whole rows of the weight, whose lengths it trains; "
                                "in this row-parallel layer the ", inputs.whole, " inputs are sharded; choose other target modules");
          const std::size_t rank = c.rank_of(part.name);
          attached added{.column = column, .outputs = part.outputs, .rank = rank, .site = site_of_name(part.name), .scale = c.scale_of(part.name)};
          const std::size_t all_inputs = inputs.whole == 0 ? inputs.count : inputs.whole;
          parameter_spec a{.name = concat(part.name, lora_names::a),
                           .shape = {rank, inputs.count},
                           .initial = initial_values::uniform(1.0 / std::sqrt(static_cast<double>(all_inputs)))};
          parameter_spec b{.name = concat(part.name, lora_names::b), .shape = {part.outputs, rank}, .rows_in_files = part.order};
          divide(build, part, inputs, a, b);
          added.a = store.declare(std::move(a));
          b.trainable = !c.frozen_b;
          added.b = store.declare(std::move(b));
          if (c.dora) {
            added.weight = store.handle_of(part.name + ".weight");
            parameter_spec m{.name = concat(part.name, lora_names::magnitude), .shape = {part.outputs}, .rows_in_files = part.order};
            if (build.shard().is_sharded() && part.whole_outputs != 0) {
              m.cut = {.whole = {part.whole_outputs}, .rows = part.rows};
              m.copies = part.copies;
            }
            m.gradients_are_parts = store.entries()[added.b.first()].spec.gradients_are_parts;
            added.magnitude = store.declare(std::move(m));
          }
          parts_.push_back(added);
        }
        column += part.outputs;
      }
    }

    [[nodiscard]] bool needs_input() const { return !parts_.empty(); }
    [[nodiscard]] bool drops_input() const { return dropout_ > 0.0 && !parts_.empty(); }
    /// All operations on rows of x or y can be confined to some rows (execution::confined).
    [[nodiscard]] bool works_on_rows() const { return !decomposes(); }

    /// y added to
    template <class Pass, class X, class Y>
    void forward(Pass& p, const X& x, const Y& y) const {
      for (const attached& part : parts_) {
        const auto scope = p.scope();
        const auto x_dropped = dropped(p, part, x);
        const auto y_part = y.columns(part.column, part.outputs);
        if (part.magnitude.exists()) {
          // y holds x · Wᵀ; x · (W' − W)ᵀ is missing
          const auto change = decomposed(p, part).change(p);
          ops::linear(p, x_dropped, change, {}, y_part, ops::result::is_added);
        } else {
          ops::linear(p, down(p, part, x_dropped), b_of(p, part), {}, y_part, ops::result::is_added, part.scale);
        }
      }
    }

    /// dx and the adapter's gradients added to. x · Aᵀ is recomputed: the rank is small.
    template <class Pass, class X, class DY, class DX>
    void backward(Pass& p, const X& x, const DY& dy, const DX& dx) const {
      const auto layer_scope = p.scope();
      const auto projected = decomposes() ? p.temporary(dy.shape(0), dy.shape(1)) : matrix{};
      if (decomposes()) fill_zero(p.stream, projected.span());
      for (const attached& part : parts_) {
        const auto scope = p.scope();
        const auto x_dropped = dropped(p, part, x);
        const auto t = down(p, part, x_dropped);
        const auto dy_part = dy.columns(part.column, part.outputs);
        const auto dt = p.temporary(t.shape(0), t.shape(1));
        if (part.magnitude.exists()) {
          // forward: y += x · (W' − W)ᵀ;  trained: scale · m / |V| · B · A in W', and m
          const auto w = decomposed(p, part);
          ops::linear_backward_input(p, dy_part, w.through(p, p.matrix(part.b)), dt, ops::result::replaces, part.scale);
          decomposed_b_backward(p, part, w, t, dy_part);
          w.project(p, x_dropped, projected.columns(part.column, part.outputs));
          input_backward(p, part, dy_part, w.change(p), dx);
        } else {
          // forward: y += scale · t · Bᵀ
          if (const auto db = p.matrix_gradient(part.b); db.exists())
            ops::linear_backward_weight(p, dy_part, t, db.rows(part.first_b, part.outputs), part.scale);
          ops::linear_backward_input(p, dy_part, b_of(p, part), dt, ops::result::replaces, part.scale);
          input_backward(p, part, dt, a_of(p, part), dx);
        }
        // forward: t = dropout(x) · Aᵀ
        if (const auto da = p.matrix_gradient(part.a); da.exists()) ops::linear_backward_weight(p, dt, x_dropped, da.rows(part.first_a, part.rank));
      }
      if (decomposes()) lengths_backward(p, projected, dy);
    }

   protected:
    /// Column-parallel layer: B is sharded, A is replicated with partial gradients. Row-parallel layer: the reverse. Unsharded parameters are on all
    /// tensor-parallel ranks.
    template <class Builder, class Part, class Inputs>
    static void divide(Builder& build, const Part& part, const Inputs& inputs, parameter_spec& a, parameter_spec& b) {
      if (!build.shard().is_sharded()) return;
      if (inputs.whole != 0) {
        a.cut = {.whole = {a.shape[0], inputs.whole}, .first_column = inputs.first};
        a.copies = 1;
        b.gradients_are_parts = true;
      } else if (part.whole_outputs != 0) {
        b.cut = {.whole = {part.whole_outputs, b.shape[1]}, .rows = part.rows};
        b.copies = part.copies;
        b.gradients_are_parts = part.copies > 1;
        a.gradients_are_parts = true;
      } else {  // both are distributed like the weight
        a.gradients_are_parts = b.gradients_are_parts = build.parameters().find(part.name + ".weight")->spec.gradients_are_parts;
      }
    }

    /// Adapters of parts of a fused module: A [parts · rank, in] and B [outputs of the parts, rank] hold them in sequence; in files B is [out, parts · rank],
    /// zero elsewhere, so that both form PEFT's adapter of the module.
    template <class Builder, class Part, class Inputs>
    void declare_parts(Builder& build, const Part& module, const Inputs& inputs, const std::vector<std::string>& names, std::size_t column) {
      const config& c = build.adapter();
      std::string known;
      for (const fused_part& one : module.fused) known += concat(known.empty() ? "" : ", ", one.name);
      for (const std::string& chosen : names)
        require<config_error>(std::count(names.begin(), names.end(), chosen) == 1 &&
                                  std::any_of(module.fused.begin(), module.fused.end(), [&](const fused_part& one) { return one.name == chosen; }),
                              "lora: parts of '", module.name, "' must be some of its parts, each once", known.empty() ? "; it has none" : concat(": ", known),
                              "; given '", chosen, "'");
      require<config_error>(!module.order, "lora: rows of '", module.name, "' must be in the same order in files where its parts have adapters");
      const std::size_t rank = names.empty() ? 0 : c.rank_of(module.name) / names.size();
      const std::string beside = module.name.substr(0, module.name.rfind('.') + 1);
      Part adapted{.name = module.name};
      blocks_of_file blocks;
      std::size_t rows = 0;  // of the unsharded B
      std::vector<attached> added;
      for (const fused_part& one : module.fused) {
        if (std::find(names.begin(), names.end(), one.name) != names.end()) {
          added.push_back({.column = column,
                           .outputs = one.mine.count,
                           .rank = rank,
                           .first_a = added.size() * rank,
                           .first_b = adapted.outputs,
                           .site = site_of_name(beside + one.name),
                           .scale = c.scale_of(module.name)});
          adapted.rows.push_back({rows + one.mine.begin - one.whole.begin, one.mine.count});
          adapted.outputs += one.mine.count;
          blocks.blocks.push_back(one.whole);
          rows += one.whole.count;
        }
        column += one.mine.count;
      }
      for (const fused_part& one : module.fused) blocks.rows += one.whole.count;
      if (module.whole_outputs != 0) adapted.whole_outputs = rows;
      parameter_spec a{.name = concat(module.name, lora_names::a),
                       .shape = {added.size() * rank, inputs.count},
                       .initial = initial_values::uniform(1.0 / std::sqrt(static_cast<double>(inputs.count)))};
      parameter_spec b{.name = concat(module.name, lora_names::b),
                       .shape = {adapted.outputs, rank},
                       .blocks_in_files = std::make_shared<const blocks_of_file>(std::move(blocks))};
      divide(build, adapted, inputs, a, b);
      const parameter all_a = build.parameters().declare(std::move(a)), all_b = build.parameters().declare(std::move(b));
      for (attached& one : added) {
        one.a = all_a, one.b = all_b;
        parts_.push_back(one);
      }
    }

    using matrix = matrix_view<typename Recipe::precision::compute, typename Recipe::device::memory>;
    using in_matrix = matrix_view<const typename Recipe::precision::compute, typename Recipe::device::memory>;
    struct attached {
      parameter a{}, b{}, magnitude{}, weight{};
      std::size_t column = 0, outputs = 0, rank = 0;
      std::size_t first_a = 0, first_b = 0;  // rows of A and B, shared by a fused module's parts
      std::uint32_t site = 0;
      double scale = 1.0;
    };

    template <class Pass>
    [[nodiscard]] bool drops(const Pass& p) const {
      return dropout_ > 0.0 && p.trains();
    }
    template <class Pass, class X>
    [[nodiscard]] X dropped(Pass& p, const attached& part, const X& x) const {
      if (!drops(p)) return x;
      const auto kept = p.temporary(x.shape(0), x.shape(1));
      p.dropout(x, dropout_, part.site, kept, ops::result::replaces, first_input_, whole_inputs_);
      return kept;
    }
    template <class Pass>
    [[nodiscard]] matrix down(Pass& p, const attached& part, in_matrix x) const {
      const auto t = p.temporary(x.shape(0), part.rank);
      ops::linear(p, x, a_of(p, part), {}, t);
      return t;
    }
    template <class Pass>
    [[nodiscard]] static in_matrix a_of(Pass& p, const attached& part) {
      return p.matrix(part.a).rows(part.first_a, part.rank);
    }
    template <class Pass>
    [[nodiscard]] static in_matrix b_of(Pass& p, const attached& part) {
      return p.matrix(part.b).rows(part.first_b, part.outputs);
    }
    /// forward: y = dropout(x) · wᵀ
    template <class Pass, class DX>
    void input_backward(Pass& p, const attached& part, in_matrix dy, in_matrix w, const DX& dx) const {
      if (!drops(p)) return ops::linear_backward_input(p, dy, w, dx, ops::result::is_added);
      const auto dx_dropped = p.temporary(dx.shape(0), dx.shape(1));
      ops::linear_backward_input(p, dy, w, dx_dropped);
      p.dropout(dx_dropped, dropout_, part.site, dx, ops::result::is_added, first_input_, whole_inputs_);
    }

    [[nodiscard]] bool decomposes() const { return !parts_.empty() && parts_.front().magnitude.exists(); }
    template <class Pass>
    [[nodiscard]] decomposed_rows<Recipe> decomposed(Pass& p, const attached& part) const {
      return {p, p.weight(part.weight), p.matrix(part.a), p.matrix(part.b), p.vector(part.magnitude), part.scale};
    }
    /// forward: y += scale · m / |V| · t · Bᵀ
    template <class Pass>
    void decomposed_b_backward(Pass& p, const attached& part, const decomposed_rows<Recipe>& w, in_matrix t, in_matrix dy) const {
      const auto db = p.matrix_gradient(part.b);
      if (!db.exists()) return;
      const auto scope = p.scope();
      const auto without_lengths = p.temporary(db.shape(0), db.shape(1));
      fill_zero(p.stream, without_lengths.span());
      ops::linear_backward_weight(p, dy, t, without_lengths);
      w.add_to_gradient(p, w.through(p, without_lengths), part.scale, db);
    }
    /// forward: y += m · projected, column by column
    template <class Pass>
    void lengths_backward(Pass& p, in_matrix projected, in_matrix dy) const {
      using gradient_type = typename Pass::gradient_type;
      const auto scope = p.scope();
      const std::size_t all = dy.shape(1);
      const vector_view<gradient_type, typename Pass::memory> dm{p.workspace.template take<gradient_type>(all), {all}};
      fill_zero(p.stream, dm.span());
      decomposed_rows<Recipe>::length_gradient(p, projected, dy, dm);
      for (const attached& part : parts_)
        if (const auto d = p.vector_gradient(part.magnitude); d.exists()) ops::add(p, dm.rows(part.column, part.outputs), d);
    }

    double dropout_ = 0.0;
    std::size_t first_input_ = 0, whole_inputs_ = 0;  // for sharded inputs
    std::vector<attached> parts_;
  };

  /// The adapter of an untied decoder head: logits += scale · dropout(x) · Aᵀ · Bᵀ. Logits exist for some tokens at a time; t = dropout(x) · Aᵀ and dt, for all
  /// tokens, are the caller's.
  template <class Recipe>
  class on_head : on_linear<Recipe> {
    using base = on_linear<Recipe>;
    using typename base::in_matrix;
    using typename base::matrix;

   public:
    ///   throws  config_error for DoRA, or when the vocabulary is sharded
    template <class Builder, class Part, class Inputs>
    void declare(Builder& build, const Part& part, const Inputs& inputs) {
      const config& c = build.adapter();
      if (!c.adapts_table(part.name)) return;  // all-linear omits the head, as in PEFT
      build.require_whole_layers("an adapter of the head");
      require<config_error>(!c.dora, "lora: the head must not be decomposed (DoRA); '", part.name, "' is a target");
      base::declare(build, std::vector<Part>{part}, inputs);
    }
    [[nodiscard]] bool exists() const { return !this->parts_.empty(); }

    /// t [n, rank], in the caller's scope
    template <class Pass>
    [[nodiscard]] matrix project(Pass& p, in_matrix x) const {
      const auto& part = this->parts_.front();
      const auto a = p.matrix(part.a);
      const auto t = p.temporary(x.shape(0), a.shape(0));
      const auto scope = p.scope();
      ops::linear(p, this->dropped(p, part, x), a, {}, t);
      return t;
    }
    template <class Pass, class Logits>
    void forward(Pass& p, in_matrix t, const Logits& logits) const {
      const auto& part = this->parts_.front();
      ops::linear(p, t, p.matrix(part.b), {}, logits, ops::result::is_added, part.scale);
    }
    /// dt [n, rank] written; gradient of B added to
    template <class Pass>
    void backward(Pass& p, in_matrix t, in_matrix dlogits, matrix dt) const {
      const auto& part = this->parts_.front();
      // forward: logits += scale · t · Bᵀ
      if (const auto db = p.matrix_gradient(part.b); db.exists()) ops::linear_backward_weight(p, dlogits, t, db, part.scale);
      ops::linear_backward_input(p, dlogits, p.matrix(part.b), dt, ops::result::replaces, part.scale);
    }
    /// dx and gradient of A added to
    template <class Pass>
    void project_backward(Pass& p, in_matrix x, in_matrix dt, matrix dx) const {
      const auto& part = this->parts_.front();
      const auto scope = p.scope();
      // forward: t = dropout(x) · Aᵀ
      if (const auto da = p.matrix_gradient(part.a); da.exists()) ops::linear_backward_weight(p, dt, this->dropped(p, part, x), da);
      this->input_backward(p, part, dt, p.matrix(part.a), dx);
    }
  };

  /// An embedding's adapter: y += scale · (the index's column of A) · Bᵀ
  template <class Recipe>
  class on_table {
   public:
    template <class Builder>
    void declare(Builder& build, const std::string& module, std::size_t indices, std::size_t width) {
      const config& c = build.adapter();
      if (!c.adapts_table(module)) return;
      build.require_whole_layers("an adapter of embeddings");
      require<config_error>(!c.dora, "lora: embeddings must not be decomposed (DoRA); '", module, "' is a target");
      const std::size_t rank = c.rank_of(module);
      scale_ = c.scale_of(module);
      // A is stored with a row per index, transposed in files
      a_ = build.parameters().declare({.name = concat(module, lora_names::table_a), .shape = {indices, rank}, .transposed_in_files = true});
      b_ = build.parameters().declare(
          {.name = concat(module, lora_names::table_b), .shape = {width, rank}, .initial = initial_values::normal(1.0), .trainable = !c.frozen_b});
    }

    [[nodiscard]] bool exists() const { return a_.exists(); }
    template <class Pass, class Indices, class Y>
    void forward(Pass& p, const Indices& index_n, const Y& y) const {
      if (!a_.exists()) return;
      const auto scope = p.scope();
      ops::linear(p, looked_up(p, index_n), p.matrix(b_), {}, y, ops::result::is_added, scale_);
    }

    /// gradients of A (except index `padding`) and B added to
    template <class Pass, class Indices, class DY>
    void backward(Pass& p, const Indices& index_n, const DY& dy, token padding = -1) const {
      if (!a_.exists()) return;
      const auto scope = p.scope();
      // forward: y += scale · t · Bᵀ
      const auto t = looked_up(p, index_n);
      if (const auto db = p.matrix_gradient(b_); db.exists()) ops::linear_backward_weight(p, dy, t, db, scale_);
      ops::linear_backward_input(p, dy, p.matrix(b_), t, ops::result::replaces, scale_);  // dt reuses the memory of t
      // forward: t = rows of A
      if (const auto da = p.matrix_gradient(a_); da.exists()) ops::embedding_backward(p, index_n, t, da, 0, padding);
    }

   private:
    template <class Pass, class Indices>
    [[nodiscard]] auto looked_up(Pass& p, const Indices& index_n) const {
      const auto a = p.matrix(a_);
      const auto t = p.temporary(index_n.shape(0), a.shape(1));
      ops::embedding(p, index_n, a, t);
      return t;
    }

    parameter a_, b_;
    double scale_ = 1.0;
  };
};

static_assert(adapter<lora>);

}  // namespace xtrain
