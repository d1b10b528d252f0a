// Definitions of parameter_list.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/tensor/parameter_list.hpp>

namespace xtrain {

XTRAIN_INLINE parameter parameter_list::declare(std::vector<parameter_spec> adjacent) {
  require<config_error>(!adjacent.empty(), "parameters: at least one must be declared");
  const parameter_spec& first = adjacent.front();
  for (const parameter_spec& spec : adjacent) {
    require<config_error>(!find(spec.name), "parameters: names must be different; '", spec.name, "' is declared twice");
    require<config_error>(spec.shape.size() == first.shape.size() && (spec.shape.size() < 2 || spec.shape[1] == first.shape[1]),
                          "parameters: '", spec.name, "' and '", first.name, "' are used as one matrix and must have the same columns");
    require<config_error>(spec.trainable == first.trainable, "parameters: '", spec.name, "' and '", first.name,
                          "' are computed together; train both or none");
    require<config_error>(spec.quantized == first.quantized && !(spec.quantized && spec.trainable), "parameters: '", spec.name,
                          "' must be quantized only if it is frozen and '", first.name, "' is too");
  }
  const parameter handle(static_cast<std::uint32_t>(entries_.size()), static_cast<std::uint32_t>(adjacent.size()));
  for (parameter_spec& spec : adjacent) {
    spec.owner = owner_;
    index_of_name_.emplace(spec.name, entries_.size());
    entries_.push_back({std::move(spec), block_, 0, handle.first()});
  }
  return handle;
}

XTRAIN_INLINE parameter parameter_list::declare(parameter_spec spec) {
  std::vector<parameter_spec> one;
  one.push_back(std::move(spec));
  return declare(std::move(one));
}

XTRAIN_INLINE void parameter_list::keep_owned_by(std::size_t rank) {
  for (entry& e : entries_) {
    e.is_here = !e.spec.owner || *e.spec.owner == rank;
    all_here_ = all_here_ && e.is_here;
  }
}

XTRAIN_INLINE void parameter_list::require_all_here(std::string_view who) const {
  require<config_error>(all_here_, who, ": all of the model must be on this rank; its strategy gives ranks different ",
                        blocks_here_ ? "experts" : "layers", ". Save the model, and do it where one rank loads it");
}

XTRAIN_INLINE bool parameter_list::has_tensor_shards() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const entry& e) { return e.spec.cut.exists(); });
}

XTRAIN_INLINE const parameter_entry* parameter_list::find(std::string_view name) const {
  const auto found = index_of_name_.find(name);
  return found == index_of_name_.end() ? nullptr : &entries_[found->second];
}

XTRAIN_INLINE parameter parameter_list::handle_of(std::string_view name) const {
  const entry* found = find(name);
  return found == nullptr ? parameter{} : parameter(static_cast<std::uint32_t>(found - entries_.data()), 1);
}

XTRAIN_INLINE std::size_t parameter_list::counted(bool trained_only) const {
  std::size_t all = 0;
  for (const entry& e : entries_)
    if (!trained_only || e.spec.trainable) all += e.size();
  return all;
}

}  // namespace xtrain
