// Prompts of online reinforcement learning, and all ranks' answers.
#pragma once

#include <cstddef>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/rl/completions.hpp>

namespace {

using xtrain::completion;
using xtrain::token;

/// Of two to four tokens.
[[maybe_unused]] std::vector<std::vector<token>> prompts_of(std::size_t number) {
  std::vector<std::vector<token>> all;
  for (std::size_t i = 0; i < number; ++i) {
    all.emplace_back();
    for (std::size_t t = 0; t < 2 + i % 3; ++t) all.back().push_back(static_cast<token>((i * 17 + t * 29 + 3) % 97));
  }
  return all;
}

/// Prompts with answers, in prompt order: ranks have different prompts, or the same.
[[maybe_unused]] std::vector<std::vector<token>> answers_in_order(const std::vector<std::vector<token>>& prompts,
                                                                  const std::vector<std::vector<completion>>& of_ranks) {
  std::vector<std::vector<token>> all;
  for (const auto& prompt : prompts)
    for (const auto& of_rank : of_ranks) {
      const std::size_t before = all.size();
      for (const completion& one : of_rank)
        if (one.prompt == prompt) all.push_back(one.tokens());
      if (all.size() > before) break;  // other ranks have the same prompts
    }
  return all;
}

}  // namespace
