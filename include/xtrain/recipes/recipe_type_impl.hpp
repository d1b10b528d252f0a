// Definitions of recipe_type.hpp.
#pragma once

#include <array>
#include <cctype>
#include <string>
#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/recipes/recipe_type.hpp>

namespace xtrain {

namespace detail {

/// Per axis: name, member, default.
template <class Recipe>
[[nodiscard]] auto axes_of(Recipe& recipe) {
  const static recipe_type plain;
  using member = std::conditional_t<std::is_const_v<Recipe>, const std::string, std::string>;
  struct axis {
    const char* name;
    member* value;
    const std::string* otherwise;
  };
  return std::array<axis, 8>{{{"device", &recipe.device, &plain.device},
                              {"precision", &recipe.precision, &plain.precision},
                              {"parallel", &recipe.parallel, &plain.parallel},
                              {"optimizer", &recipe.optimizer, &plain.optimizer},
                              {"objective", &recipe.objective, &plain.objective},
                              {"recompute", &recipe.recompute, &plain.recompute},
                              {"offload", &recipe.offload, &plain.offload},
                              {"adapter", &recipe.adapter, &plain.adapter}}};
}

/// zero<2> becomes xtrain::zero<2>.
[[nodiscard]] inline std::string qualified(const std::string& type) {
  std::string result;
  bool inside = false;
  for (std::size_t i = 0; i < type.size(); ++i) {
    const bool letter = std::isalpha(static_cast<unsigned char>(type[i])) != 0 || type[i] == '_';
    const bool word = letter || std::isdigit(static_cast<unsigned char>(type[i])) != 0 || type[i] == ':';
    if (letter && !inside) result += "xtrain::";
    inside = word;
    result += type[i];
  }
  return result;
}

}  // namespace detail

XTRAIN_INLINE std::string recipe_type::text(const std::string& name) const {
  std::string result = concat("struct ", name, " : xtrain::defaults {\n");
  for (const auto& axis : detail::axes_of(*this))
    if (*axis.value != *axis.otherwise) result += concat("  using ", axis.name, " = ", detail::qualified(*axis.value), ";\n");
  return result + "};\n";
}

XTRAIN_INLINE std::string recipe_type::key() const {
  std::string result = device + "-" + precision;
  for (const auto& axis : detail::axes_of(*this)) {
    if (axis.value == &device || axis.value == &precision || *axis.value == *axis.otherwise) continue;
    result += '-';
    for (const char c : *axis.value) {
      if (c == ' ' || c == '>') continue;
      result += c == '<' || c == ',' || c == ':' ? '.' : c;
    }
  }
  return result;
}

XTRAIN_INLINE std::string recipe_type::cmake(const std::string& name, const std::string& source) const {
  std::string result = concat("xtrain_add_trainer(NAME ", name, " SOURCE ", source);
  for (const auto& axis : detail::axes_of(*this)) {
    if (*axis.value == *axis.otherwise) continue;
    std::string upper = axis.name;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const bool quoted = axis.value->find_first_of("< ") != std::string::npos;
    result += concat(" ", upper, " ", quoted ? "\"" : "", *axis.value, quoted ? "\"" : "");
  }
  return result + ")";
}

XTRAIN_INLINE recipe_type recipe_of(const run_description& run) {
  run.check();
  const parallel_description& mesh = run.parallel;
  recipe_type type;
  type.device = run.device;
  type.precision = run.precision;
  type.optimizer = run.optimizer.kind;
  type.objective = run.objective.kind;
  type.recompute = run.recompute == "selective" ? "recompute_selective<attention_outputs>" : "recompute_" + run.recompute;
  const std::string where = run.device == "cpu" ? "offload_to_file" : "offload_to_host";
  if (run.offload == "optimizer") type.offload = where + "<memory_role::optimizer>";
  if (run.offload == "optimizer+weights") type.offload = where + "<memory_role::optimizer, memory_role::weights>";

  if (run.adapter.kind == "lora" || run.adapter.kind == "dora") type.adapter = "lora";
  else if (run.adapter.kind == "qlora" || run.adapter.kind == "qdora") type.adapter = "qlora";
  else if (run.adapter.kind == "prefix") type.adapter = "prefix_tuning";
  else if (run.adapter.kind == "qat" || run.adapter.kind == "qat_lora") type.adapter = run.adapter.kind;

  std::string rows = mesh.zero == 0 ? "data_parallel" : concat("zero<", mesh.zero, ">");
  std::string axes;
  if (mesh.tensor > 1) axes += mesh.sequence_parallel ? ", sequence_parallel" : ", tensor_parallel";
  if (mesh.context > 1) axes += mesh.ring ? ", ring_context_parallel" : ", context_parallel";
  if (mesh.expert > 1) axes += ", expert_parallel";
  const std::string beside = axes.empty() ? rows : concat("parallel<", rows, axes, ">");
  if (mesh.pipeline > 1) {
    std::string schedule = "one_forward_one_backward";
    if (mesh.schedule == "gpipe") schedule = "gpipe";
    else if (mesh.schedule == "aiao") schedule = "all_in_all_out";
    else if (mesh.schedule == "zero_bubble") schedule = "zero_bubble";
    else if (mesh.schedule == "interleaved" || mesh.virtual_stages > 1) schedule = "interleaved";
    type.parallel = beside == "data_parallel" ? concat("pipeline<", schedule, ">") : concat("pipeline<", schedule, ", ", beside, ">");
  } else {
    require<config_error>(mesh.micro_batch_sizes.empty(),
                          "run description: parallel.micro_batch_sizes: micro-batches of different sizes need pipeline-parallel ranks; parallel.pipeline is 1");
    if (mesh.ranks > 1 || !axes.empty()) type.parallel = beside;
  }
  return type;
}

}  // namespace xtrain
