#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/block_dtypes.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/gguf_names.hpp>
#include <xtrain/io/gguf_tensors.hpp>

namespace xtrain {

XTRAIN_INLINE std::string_view name_of(gguf_type type) {
  constexpr std::array<std::string_view, 5> names{"F32", "F16", "BF16", "Q8_0", "Q4_0"};
  return names[static_cast<std::size_t>(type)];
}

XTRAIN_INLINE std::optional<gguf_type> gguf_type_named(std::string_view name) {
  for (const gguf_type type : {gguf_type::f32, gguf_type::f16, gguf_type::bf16, gguf_type::q8_0, gguf_type::q4_0}) {
    const std::string_view own = name_of(type);
    const auto same = [](char a, char b) { return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b); };
    if (own.size() == name.size() && std::equal(own.begin(), own.end(), name.begin(), same)) return type;
  }
  return {};
}

XTRAIN_INLINE gguf_source gguf_source_of(const file_tensor& tensor) {
  return {.name = tensor.name, .shape = tensor.shape, .open = [&tensor](std::vector<std::byte>&) { return tensor; }};
}

namespace detail {

/// All rows of a source, or the listed ones.
struct gguf_rows {
  gguf_source from{};
  std::optional<std::vector<std::uint32_t>> rows{};
};

/// Changes of numbers.
struct gguf_conversion {
  bool transposed = false;
  bool one_more = false;
  bool normalized = false;
  double factor = 1.0;
};

XTRAIN_INLINE void put_gguf_numbers(std::span<const float> numbers, std::string_view type, const std::string& who, std::vector<std::byte>& bytes) {
  const auto refuse = [&](float number) { fail<data_error>(who, ": numbers must be finite in ", type, "; one is ", number, ", too large or not finite"); };
  const auto converted = [&]<class T>(T) {
    bytes.resize(numbers.size() * sizeof(T));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const T value(numbers[i]);
      if (!std::isfinite(static_cast<float>(value))) refuse(numbers[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  if (type == "F32") return converted(float{});
  if (type == "F16") return converted(fp16{});
  if (type == "BF16") return converted(bf16{});
  const block_dtype& blocks = *find_block_dtype(type);
  bytes.resize(numbers.size() / blocks.numbers * blocks.bytes);
  for (std::size_t first = 0; first < numbers.size(); first += blocks.numbers) {
    std::byte* block = bytes.data() + first / blocks.numbers * blocks.bytes;
    const std::span<const float> of_block = numbers.subspan(first, blocks.numbers);
    for (const float number : of_block)
      if (!std::isfinite(number)) refuse(number);
    blocks.encode(of_block.data(), block);
    fp16 scale;
    std::memcpy(static_cast<void*>(&scale), block, sizeof(scale));
    if (!std::isfinite(static_cast<float>(scale))) refuse(*std::max_element(of_block.begin(), of_block.end()));
  }
}

/// Of rows of tensors, in pieces.
inline void produce_gguf_tensor(const std::vector<gguf_rows>& parts, const gguf_conversion& how, const std::string& type, const std::string& who,
                                const std::function<void(const void*, std::size_t)>& sink) {
  constexpr std::size_t numbers_of_piece = std::size_t{1} << 16;
  std::vector<float> numbers;
  std::vector<std::byte> bytes, storage;
  for (const gguf_rows& part : parts) {
    file_tensor from = part.from.open(storage);
    if (how.transposed) {
      if (from.layout.empty()) from.layout = {{from.shape[0], from.shape[1]}, {from.shape[1], 1}};
      std::swap(from.shape[0], from.shape[1]);
      std::swap(from.layout[0], from.layout[1]);
    }
    const std::size_t columns = from.shape.size() == 1 && part.rows ? 1 : from.shape.back();
    const std::size_t rows = part.rows ? part.rows->size() : from.size() / columns, at_once = std::max<std::size_t>(numbers_of_piece / columns, 1);
    for (std::size_t first = 0; first < rows; first += at_once) {
      const std::size_t count = std::min(at_once, rows - first);
      numbers.resize(count * columns);
      if (!part.rows) read_numbers<float>(from, first * columns, numbers);
      else
        for (std::size_t i = 0; i < count; ++i)
          read_numbers<float>(from, (*part.rows)[first + i] * columns, std::span(numbers).subspan(i * columns, columns));
      for (std::size_t i = 0; i < count && how.normalized; ++i) {
        const std::span<float> row = std::span(numbers).subspan(i * columns, columns);
        double squares = 0.0;
        for (const float number : row) squares += static_cast<double>(number) * static_cast<double>(number);
        const double length = std::max(std::sqrt(squares), 1e-12);
        for (float& number : row) number = static_cast<float>(static_cast<double>(number) / length);
      }
      if (how.one_more)
        for (float& number : numbers) number += 1.0f;
      if (how.factor != 1.0)
        for (float& number : numbers) number = static_cast<float>(static_cast<double>(number) * how.factor);
      put_gguf_numbers(numbers, type, who, bytes);
      sink(bytes.data(), bytes.size());
    }
  }
}

/// Hugging Face's row of each row of separate queries, keys or values.
[[nodiscard]] inline std::vector<std::uint32_t> gguf_paired_rows(std::size_t heads, std::size_t d) {
  std::vector<std::uint32_t> rows;
  for (std::size_t head = 0; head < heads; ++head)
    for (std::size_t i = 0; i < d; ++i) rows.push_back(static_cast<std::uint32_t>(head * d + i % 2 * (d / 2) + i / 2));
  return rows;
}
/// Of a fused module: queries (part 0), keys, values.
[[nodiscard]] inline std::vector<std::uint32_t> gguf_unfused_rows(const gguf_sizes& sizes, std::size_t part) {
  const gguf_heads heads{sizes.num_heads, sizes.num_kv_heads};
  std::vector<std::uint32_t> rows((part == 0 ? heads.all : heads.keys) * sizes.head_dim);
  const std::vector<gguf_row> fused = gguf_fused_rows(heads, sizes.head_dim, sizes.architecture == "internlm2");
  for (std::size_t i = 0; i < fused.size(); ++i)
    if (fused[i].part == part) rows[fused[i].row] = static_cast<std::uint32_t>(i);
  return rows;
}
/// Of BLOOM's fused module: all queries, keys, values from q, k, v per head.
[[nodiscard]] inline std::vector<std::uint32_t> gguf_rows_by_part(const gguf_sizes& sizes) {
  std::vector<std::uint32_t> rows;
  const std::size_t d = sizes.head_dim;
  for (std::size_t part = 0; part < 3; ++part)
    for (std::size_t head = 0; head < sizes.num_heads; ++head)
      for (std::size_t i = 0; i < d; ++i) rows.push_back(static_cast<std::uint32_t>((head * 3 + part) * d + i));
  return rows;
}

/// A weight's rows in the file's order; nullopt: unchanged.
[[nodiscard]] inline std::optional<std::vector<std::uint32_t>> gguf_row_order(const gguf_sizes& sizes, gguf_change change) {
  if (change == gguf_change::queries) return gguf_paired_rows(sizes.num_heads, sizes.head_dim);
  if (change == gguf_change::keys) return gguf_paired_rows(sizes.num_kv_heads, sizes.head_dim);
  if (change == gguf_change::by_part) return gguf_rows_by_part(sizes);
  return {};
}

[[nodiscard]] inline std::string gguf_expert_name(std::string_view name, std::size_t expert) {
  const std::size_t star = name.find('*');
  return concat(name.substr(0, star), expert, name.substr(star + 1));
}

/// A tensor's type in the file.
[[nodiscard]] inline std::string gguf_type_of(const std::string& name, const std::vector<std::size_t>& shape, gguf_type type) {
  const std::string_view file_name = name;
  const bool is_vector = shape.size() < 2 || !file_name.ends_with(".weight") || file_name.ends_with("_norm.weight");
  if (is_vector || file_name == "position_embd.weight" || file_name.ends_with("ffn_gate_inp.weight")) return "F32";
  const bool in_blocks = type == gguf_type::q8_0 || type == gguf_type::q4_0;
  return std::string(name_of(in_blocks && shape.back() % 32 != 0 ? gguf_type::f16 : type));
}

/// The module has a bias.
[[nodiscard]] inline bool gguf_has_bias(const gguf_sizes& sizes, std::string_view theirs) {
  if (sizes.all_biases) return theirs != "token_embd" && theirs != "position_embd" && theirs != "output";
  if (theirs == "attn_q" || theirs == "attn_k" || theirs == "attn_v" || theirs == "attn_qkv") return sizes.attention_bias;
  if (theirs == "attn_output") return sizes.output_bias;
  return sizes.feed_forward_bias && (theirs == "ffn_gate" || theirs == "ffn_up" || theirs == "ffn_down");
}

/// The module exists.
[[nodiscard]] inline bool gguf_has_module(const gguf_sizes& sizes, const gguf_name& what) {
  if (what.theirs.ends_with('*')) return false;  // older files: a tensor per expert
  const bool is_fused_in_phi3 = what.theirs == "attn_q" || what.theirs == "attn_k" || what.theirs == "attn_v" || what.theirs == "ffn_gate";
  if (sizes.architecture == "phi3" && is_fused_in_phi3) return false;
  const bool of_experts = what.change == gguf_change::per_expert || what.theirs == "ffn_gate_inp";
  if (of_experts) return sizes.num_experts != 0;
  return sizes.num_experts == 0 || (what.theirs != "ffn_gate" && what.theirs != "ffn_up" && what.theirs != "ffn_down");
}

}  // namespace detail

XTRAIN_INLINE void add_gguf_tensors(gguf_writer& to, const gguf_sizes& sizes, gguf_type type,
                                    const std::function<const gguf_source*(const std::string&)>& find) {
  using detail::gguf_change;
  const detail::gguf_architecture architecture = detail::gguf_architecture_of(sizes.architecture, to.path());
  const auto add = [&](const std::string& name, std::vector<std::size_t> shape, std::vector<detail::gguf_rows> parts, const detail::gguf_conversion& how) {
    const std::string stored = detail::gguf_type_of(name, shape, type), who = concat(to.path(), ": '", name, "'");
    to.add_tensor({.name = name, .type = stored, .shape = std::move(shape), .produce = [parts = std::move(parts), how, stored, who](const auto& sink) {
                     detail::produce_gguf_tensor(parts, how, stored, who, sink);
                   }});
  };
  const auto get = [&](const std::string& name, std::size_t dims) -> const gguf_source& {
    const gguf_source* found = find(name);
    require<config_error>(found != nullptr, to.path(), ": the model must have '", name, "' to be written; it is missing");
    require<config_error>(found->shape.size() == dims && std::find(found->shape.begin(), found->shape.end(), 0U) == found->shape.end(), to.path(), ": '", name,
                          "' must have ", dims, dims == 1 ? " dim" : " dims", " and numbers; its shape is ", std::span<const std::size_t>(found->shape));
    return *found;
  };
  const auto require_rows = [&](const gguf_source& from, std::size_t rows) {
    require<config_error>(from.shape[0] == rows, to.path(), ": '", from.name, "' must have ", rows, " rows, as its heads say; it has ", from.shape[0]);
  };
  const auto take = [&](const detail::gguf_name& what, const std::string& before, const std::string& ours_before) {
    if (!detail::gguf_has_module(sizes, what)) return;
    for (const std::string kind : {".weight", ".bias"}) {
      const bool is_weight = kind == ".weight";
      if (!is_weight && !detail::gguf_has_bias(sizes, what.theirs)) continue;
      const std::string name = concat(before, what.theirs, kind);
      if (what.change == gguf_change::per_expert) {
        std::vector<detail::gguf_rows> parts;
        for (std::size_t e = 0; e < sizes.num_experts; ++e) {
          parts.push_back({.from = get(concat(ours_before, detail::gguf_expert_name(what.ours, e), kind), 2)});
          require<config_error>(parts.back().from.shape == parts[0].from.shape, to.path(), ": '", parts.back().from.name,
                                "' must have the shape of the first expert's, ", std::span<const std::size_t>(parts[0].from.shape));
        }
        std::vector<std::size_t> shape{sizes.num_experts, parts[0].from.shape[0], parts[0].from.shape[1]};
        add(name, std::move(shape), std::move(parts), {});
        continue;
      }
      const bool is_norm = what.theirs.ends_with("norm");
      const gguf_source& from = get(concat(ours_before, what.ours, kind), is_weight && !is_norm ? 2 : 1);
      detail::gguf_rows part{.from = from, .rows = detail::gguf_row_order(sizes, what.change)};
      if (part.rows) require_rows(from, part.rows->size());
      detail::gguf_conversion how{.transposed = what.change == gguf_change::transposed && is_weight};
      how.one_more = what.change == gguf_change::one_less && is_weight;
      how.normalized = what.theirs == "output" && sizes.normalized_head;
      std::vector<std::size_t> shape = from.shape;
      if (how.transposed) std::swap(shape[0], shape[1]);
      add(name, std::move(shape), {std::move(part)}, how);
    }
  };
  const bool needs_head = sizes.architecture == "baichuan" || sizes.architecture == "internlm2";  // llama.cpp ties no such head
  for (const detail::gguf_name& what : architecture.whole) {
    if (what.theirs != "output" || !sizes.tie_word_embeddings) take(what, "", "");
    else if (needs_head) take({"output", architecture.whole[0].ours}, "", "");
  }
  for (std::size_t layer = 0; layer < sizes.num_layers; ++layer) {
    const std::string before = concat("blk.", layer, "."), ours_before = concat(architecture.blocks, layer, ".");
    for (const std::string kind : {".weight", ".bias"}) {
      if (architecture.fused.empty() || (kind == ".bias" && !sizes.attention_bias)) continue;
      const gguf_source& from = get(concat(ours_before, architecture.fused, kind), kind == ".bias" ? 1 : 2);
      require_rows(from, (sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim);
      for (std::size_t part = 0; part < 3; ++part) {
        detail::gguf_rows rows{.from = from, .rows = detail::gguf_unfused_rows(sizes, part)};
        std::vector<std::size_t> shape = from.shape;
        shape[0] = rows.rows->size();
        add(concat(before, "attn_", "qkv"[part], kind), std::move(shape), {std::move(rows)}, {});
      }
    }
    for (const detail::gguf_name& what : architecture.of_block) take(what, before, ours_before);
  }
}

XTRAIN_INLINE void add_gguf_adapter(gguf_writer& to, const gguf_sizes& sizes, gguf_type type, const std::vector<gguf_adapter_source>& modules) {
  using detail::gguf_change;
  const detail::gguf_architecture architecture = detail::gguf_architecture_of(sizes.architecture, to.path());
  require<config_error>(!modules.empty(), to.path(), ": an adapter must have matrices; it has none");
  require<config_error>(type == gguf_type::f32 || type == gguf_type::f16 || type == gguf_type::bf16, to.path(), ": an adapter must be F32, F16 or BF16; given ",
                        name_of(type));
  std::map<std::string, const gguf_adapter_source*, std::less<>> by_name;
  for (const gguf_adapter_source& one : modules) {
    require<config_error>(one.a.shape.size() == 2 && one.b.shape.size() == 2 && one.a.shape[0] == one.b.shape[1] && one.a.shape[0] != 0, to.path(),
                          ": the adapter of '", one.module, "' must have A [rank, inputs] and B [outputs, rank]; their shapes are ",
                          std::span<const std::size_t>(one.a.shape), " and ", std::span<const std::size_t>(one.b.shape));
    require<config_error>(by_name.emplace(one.module, &one).second, to.path(), ": '", one.module, "' must have one adapter; it has two");
  }
  const auto alpha_of = [](const gguf_adapter_source& one) { return one.scale * static_cast<double>(one.a.shape[0]); };
  const double alpha = alpha_of(modules.front());
  require<config_error>(alpha != 0.0 && std::isfinite(static_cast<float>(alpha)), to.path(), ": alpha must be finite and not 0; it is ", alpha);
  to.add_f32("adapter.lora.alpha", alpha);
  const auto stored_alpha = static_cast<double>(static_cast<float>(alpha));
  std::set<std::string_view> used;
  const auto add = [&](const std::string& name, std::vector<std::size_t> shape, std::vector<detail::gguf_rows> parts, const detail::gguf_conversion& how) {
    const std::string stored(name_of(type)), who = concat(to.path(), ": '", name, "'");
    to.add_tensor({.name = name, .type = stored, .shape = std::move(shape), .produce = [parts = std::move(parts), how, stored, who](const auto& sink) {
                     detail::produce_gguf_tensor(parts, how, stored, who, sink);
                   }});
  };
  const auto find = [&](const std::string& module) -> const gguf_adapter_source* {
    const auto at = by_name.find(module);
    if (at == by_name.end()) return nullptr;
    used.insert(at->first);
    return at->second;
  };
  // alpha may be rounded where alpha / rank is no binary fraction; a factor of 1 within that is 1
  const auto factor_of = [&](const gguf_adapter_source& one) {
    const double factor = alpha_of(one) / stored_alpha;
    return std::abs(factor - 1.0) < 1e-7 ? 1.0 : factor;
  };
  const auto add_pair = [&](const std::string& name, const gguf_adapter_source& one, std::optional<std::vector<std::uint32_t>> rows) {
    add(name + ".lora_a", one.a.shape, {{.from = one.a}}, {});
    if (rows) {
      const auto [begin, end] = std::minmax_element(rows->begin(), rows->end());
      require<config_error>(*end < one.b.shape[0], to.path(), ": B of '", one.module, "' must have ", std::size_t{*end} + 1,
                            " rows or more, as the heads say; it has ", one.b.shape[0]);
    }
    const std::size_t count = rows ? rows->size() : one.b.shape[0];
    add(name + ".lora_b", {count, one.b.shape[1]}, {{.from = one.b, .rows = std::move(rows)}}, {.factor = factor_of(one)});
  };
  const auto take = [&](const detail::gguf_name& what, const std::string& before, const std::string& ours_before) {
    if (!detail::gguf_has_module(sizes, what)) return;
    const std::string name = concat(before, what.theirs, ".weight");
    if (what.change == gguf_change::per_expert) {
      std::vector<const gguf_adapter_source*> all;
      for (std::size_t e = 0; e < sizes.num_experts; ++e)
        if (const gguf_adapter_source* one = find(concat(ours_before, detail::gguf_expert_name(what.ours, e)))) all.push_back(one);
      if (all.empty()) return;
      const auto same = [&](const gguf_adapter_source* one) {
        return one->a.shape == all[0]->a.shape && one->b.shape == all[0]->b.shape && factor_of(*one) == factor_of(*all[0]);
      };
      require<config_error>(all.size() == sizes.num_experts && std::all_of(all.begin(), all.end(), same), to.path(), ": each of the ", sizes.num_experts,
                            " experts of '", ours_before, what.ours, "' must have an adapter of the same rank and scale, or none; ", all.size(), " have one");
      std::vector<detail::gguf_rows> a, b;
      for (const gguf_adapter_source* one : all) {
        a.push_back({.from = one->a});
        b.push_back({.from = one->b});
      }
      add(name + ".lora_a", {all.size(), all[0]->a.shape[0], all[0]->a.shape[1]}, std::move(a), {});
      add(name + ".lora_b", {all.size(), all[0]->b.shape[0], all[0]->b.shape[1]}, std::move(b), {.factor = factor_of(*all[0])});
      return;
    }
    const gguf_adapter_source* one = find(concat(ours_before, what.ours));
    if (one == nullptr) return;
    require<config_error>(!sizes.tie_word_embeddings || (what.theirs != "token_embd" && what.theirs != "output"), to.path(), ": '", one->module,
                          "' must have no adapter: llama.cpp has one matrix for the tied embedding and head, and multiplies an adapter in one way");
    require<config_error>(one->is_embedding == (what.theirs == "token_embd") && what.theirs != "position_embd", to.path(), ": '", one->module,
                          "' must have an adapter of ", what.theirs == "token_embd" ? "an embedding" : "a linear module");
    if (one->is_embedding) {
      add(name + ".lora_a", {one->a.shape[1], one->a.shape[0]}, {{.from = one->a}}, {.transposed = true});
      add(name + ".lora_b", one->b.shape, {{.from = one->b}}, {.factor = factor_of(*one)});
      return;
    }
    add_pair(name, *one, detail::gguf_row_order(sizes, what.change));
  };
  for (const detail::gguf_name& what : architecture.whole) take(what, "", "");
  for (std::size_t layer = 0; layer < sizes.num_layers; ++layer) {
    const std::string before = concat("blk.", layer, "."), ours_before = concat(architecture.blocks, layer, ".");
    if (!architecture.fused.empty())
      if (const gguf_adapter_source* one = find(concat(ours_before, architecture.fused)))
        for (std::size_t part = 0; part < 3; ++part)
          add_pair(concat(before, "attn_", "qkv"[part], ".weight"), *one, detail::gguf_unfused_rows(sizes, part));
    for (const detail::gguf_name& what : architecture.of_block) take(what, before, ours_before);
  }
  for (const auto& entry : by_name)
    require<config_error>(used.contains(entry.first), to.path(), ": '", entry.first, "' must be a module that llama.cpp's architecture '", sizes.architecture,
                          "' has, in one of ", sizes.num_layers, " layers; it is not");
}

}  // namespace xtrain
