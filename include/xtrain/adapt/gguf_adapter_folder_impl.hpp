// Definitions of gguf_adapter_folder.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/gguf_adapter_folder.hpp>
#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/adapt/peft.hpp>
#include <xtrain/adapt/peft_config.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/gguf_impl.hpp>
#include <xtrain/io/gguf_names.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/io/gguf_tensors_impl.hpp>
#include <xtrain/io/rewrite.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {

namespace detail {

/// The matrices of an adapter in a GGUF file, with Hugging Face's names and order of rows.
class gguf_adapter_matrices {
 public:
  gguf_adapter_matrices(const gguf_file& file, const gguf_sizes& sizes) : file_(&file), sizes_(&sizes), heads_{sizes.num_heads, sizes.num_kv_heads} {
    const std::string& path = file.path();
    const auto text = [&](const char* key) { return file.text(key).value_or(""); };
    require<config_error>(text("general.type") == "adapter" && text("adapter.type") == "lora", path, ": must hold a LoRA adapter; its general.type is '",
                          text("general.type"), "', its adapter.type '", text("adapter.type"), "'");
    require<config_error>(text("general.architecture") == sizes.architecture, path, ": must be an adapter for a model of architecture '", sizes.architecture,
                          "', the base model's; it is for '", text("general.architecture"), "'");
    const std::optional<double> given = file.number("adapter.lora.alpha");
    require<config_error>(given && std::isfinite(*given) && *given != 0.0, path, ": 'adapter.lora.alpha' must be finite and not 0; it is ",
                          given ? concat(*given) : std::string("missing"));
    config.alpha = shortest_of_float(*given);
    for (const gguf_tensor& one : file.tensors()) {
      require<config_error>(is_floating(one.type), path, ": '", one.name, "' must be of a type that can be loaded; it is ", one.type);
      stored_.emplace(one.name, &one);
    }
    const gguf_architecture architecture = gguf_architecture_of(sizes.architecture, path);
    for (const gguf_name& what : architecture.whole) take(what, "", "");
    for (std::size_t layer = 0; layer < sizes.num_layers; ++layer) {
      const std::string before = concat("blk.", layer, "."), ours_before = concat(architecture.blocks, layer, ".");
      if (!architecture.fused.empty()) take_fused(before, concat(ours_before, architecture.fused), sizes.architecture == "internlm2");
      for (const gguf_name& what : architecture.of_block) take(what, before, ours_before);
    }
    for (const auto& entry : stored_)
      require<config_error>(used_.contains(entry.first), path, ": '", entry.first, "' must belong to a module of the base model, of architecture '",
                            sizes.architecture, "' with ", sizes.num_layers, " layers; it does not");
    require<config_error>(!ranks_.empty(), path, ": an adapter must have matrices; it has none");
    configure();
  }

  lora_config config{};
  std::list<file_tensor> tensors{};

 private:
  struct pair {
    const gguf_tensor *a, *b;
  };

  /// The matrices of a weight in the file; none if it has no adapter.
  [[nodiscard]] std::optional<pair> find(const std::string& weight, std::size_t dims) {
    const auto named = [&](const char* ending) -> const gguf_tensor* {
      const auto at = stored_.find(weight + ending);
      if (at == stored_.end()) return nullptr;
      used_.insert(at->first);
      return at->second;
    };
    const pair found{named(".lora_a"), named(".lora_b")};
    if (found.a == nullptr && found.b == nullptr) return {};
    const auto fits = [&](const gguf_tensor* one) {
      if (one == nullptr || one->shape.size() != dims) return false;
      for (const std::size_t dim : one->shape)
        if (dim == 0) return false;
      return true;
    };
    require<config_error>(fits(found.a) && fits(found.b), file_->path(), ": '", weight, "' must have a lora_a and a lora_b of ", dims,
                          " dims with numbers; it has ", found.a == nullptr || found.b == nullptr ? "one" : "others");
    return found;
  }

  [[nodiscard]] static file_tensor view(const gguf_tensor& from, std::string name) {
    return {.name = std::move(name), .dtype = std::string(from.type), .shape = from.shape, .bytes = from.bytes};
  }

  void add(const std::string& module, file_tensor a, file_tensor b, bool is_table) {
    const std::size_t rank = a.shape[0];
    require<config_error>(b.shape[1] == rank, file_->path(), ": the adapter of '", module,
                          "' must have A [rank, inputs] and B [outputs, rank]; their shapes are ",
                          std::span<const std::size_t>(a.shape), " and ", std::span<const std::size_t>(b.shape));
    a.name = concat(peft_prefix, module, is_table ? lora_names::table_a : lora_names::a);
    b.name = concat(peft_prefix, module, is_table ? lora_names::table_b : lora_names::b);
    tensors.push_back(std::move(a));
    tensors.push_back(std::move(b));
    ranks_.emplace(module, rank);
  }

  void candidate(const std::string& module) { modules_.push_back(module); }

  void take(const gguf_name& what, const std::string& before, const std::string& ours_before) {
    if (!gguf_has_module(*sizes_, what) || what.theirs.ends_with("norm")) return;
    if (what.theirs == "output" && sizes_->tie_word_embeddings) return;
    const std::string weight = concat(before, what.theirs, ".weight");
    if (what.change == gguf_change::per_expert) {
      const std::optional<pair> found = find(weight, 3);
      for (std::size_t e = 0; e < sizes_->num_experts; ++e) {
        const std::string module = concat(ours_before, gguf_expert_name(what.ours, e));
        candidate(module);
        if (!found) continue;
        const auto of_expert = [&](const gguf_tensor& all) {
          require<config_error>(all.shape[0] == sizes_->num_experts, file_->path(), ": '", all.name, "' must have matrices of ", sizes_->num_experts,
                                " experts; its shape is ", std::span<const std::size_t>(all.shape));
          file_tensor one = view(all, {});
          one.shape.erase(one.shape.begin());
          const std::size_t bytes = all.bytes.size() / sizes_->num_experts;
          one.bytes = all.bytes.subspan(e * bytes, bytes);
          return one;
        };
        add(module, of_expert(*found->a), of_expert(*found->b), false);
      }
      return;
    }
    const std::string module = concat(ours_before, what.ours);
    candidate(module);
    const std::optional<pair> found = find(weight, 2);
    if (!found) return;
    require<config_error>(what.theirs != "position_embd" && (what.theirs != "token_embd" || !sizes_->tie_word_embeddings), file_->path(), ": '", weight,
                          "' must have no adapter: ", what.theirs == "token_embd" ? "the embedding is the head, too" : "it is no linear module");
    if (what.theirs != "token_embd") {
      const bool is_reordered = what.change == gguf_change::queries || what.change == gguf_change::keys || what.change == gguf_change::by_part;
      file_tensor b = view(*found->b, std::string(found->b->name));
      return add(module, view(*found->a, {}), is_reordered ? gguf_view(std::move(b), what.change, heads_, file_->path()) : std::move(b), false);
    }
    file_tensor a = view(*found->a, {});
    a.layout = {{a.shape[1], 1}, {a.shape[0], a.shape[1]}};
    std::swap(a.shape[0], a.shape[1]);
    add(module, std::move(a), view(*found->b, {}), true);
  }

  void take_fused(const std::string& before, const std::string& module, bool by_key_head) {
    candidate(module);
    std::array<const gguf_tensor*, 3> b{};
    const gguf_tensor* a = nullptr;
    std::size_t count = 0;
    for (std::size_t part = 0; part < 3; ++part) {
      const std::optional<pair> found = find(concat(before, "attn_", "qkv"[part], ".weight"), 2);
      if (!found) continue;
      ++count;
      b[part] = found->b;
      if (a == nullptr) a = found->a;
      require<config_error>(same_values(view(*a, {}), view(*found->a, {})), file_->path(), ": the A of '", before,
                            "attn_q', attn_k and attn_v must be the same, because they are one module of the base model, '", module, "'; they differ");
    }
    if (count == 0) return;
    require<config_error>(count == 3, file_->path(), ": '", before, "attn_q', attn_k and attn_v must all have an adapter, or none; ", count, " have one");
    bytes_.emplace_back();
    file_tensor fused = gguf_fused(module, b, heads_, sizes_->head_dim, by_key_head, bytes_.back(), file_->path());
    fused.bytes = bytes_.back();
    add(module, view(*a, {}), std::move(fused), false);
  }

  /// Targets are last names where each module with that name has an adapter, or else full names.
  void configure() {
    const auto last = [](const std::string& module) { return module.substr(module.rfind('.') + 1); };
    std::set<std::string> partial, targets;
    for (const std::string& module : modules_)
      if (!ranks_.contains(module)) partial.insert(last(module));
    config.rank = ranks_.begin()->second;
    for (const auto& [module, rank] : ranks_) {
      targets.insert(partial.contains(last(module)) ? module : last(module));
      if (rank != config.rank) config.rank_pattern.emplace_back(module, rank);
    }
    config.targets.assign(targets.begin(), targets.end());
  }

  const gguf_file* file_;
  const gguf_sizes* sizes_;
  gguf_heads heads_;
  std::map<std::string, const gguf_tensor*, std::less<>> stored_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> modules_;
  std::map<std::string, std::size_t> ranks_;
  std::list<std::vector<std::byte>> bytes_;
};

}  // namespace detail

XTRAIN_INLINE void write_adapter_folder(const std::string& folder, const std::string& path, const gguf_config& base, const std::string& base_model) {
  const gguf_file file(path);
  const gguf_sizes sizes = gguf_sizes_of(base, path);
  const detail::gguf_adapter_matrices read(file, sizes);
  std::vector<tensor_to_write> tensors;
  for (const file_tensor& one : read.tensors) tensors.push_back(rewritten(one, find_block_dtype(one.dtype) == nullptr ? std::string_view(one.dtype) : "F32"));
  make_folder(folder);
  const bool transposed = sizes.architecture == "gpt2";
  write_file(folder + "/adapter_config.json", detail::peft_config_text(read.config, base_model, transposed, false, "CAUSAL_LM"));
  write_safetensors(folder + "/adapter_model.safetensors", std::move(tensors));
}

}  // namespace xtrain
