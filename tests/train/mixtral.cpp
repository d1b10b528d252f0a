// Mixtral against transformers, including the load-balancing loss.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <xtrain/models/mixtral.hpp>
#include "parity.hpp"

using namespace parity;

TEST_CASE("mixtral is transformers', with a window and without") {
  check_all<mixtral>("mixtral");
  check_all<mixtral>("mixtral_full_attention");
}

TEST_CASE("padding does not count in the load-balancing loss, as in transformers with an attention mask") {
  // two sequences of 8 tokens, the second with 3 of padding; tokens of a sample without a target count
  host_batch rows{.b = 2, .t = 8};
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t r = i / 8, at = i % 8, start = r == 1 && at >= 5 ? 5 : 0;
    rows.tokens.push_back(start > 0 ? 0 : static_cast<token>((r * 17 + at * at * 5 + 3) % 47));
    rows.targets.push_back(start > 0 ? padding_target : i == 2 || i == 8 ? -1 : static_cast<token>((r * 13 + at * 7 + 2) % 47));
    rows.positions.push_back(static_cast<token>(at - start));
    rows.starts.push_back(static_cast<token>(start));
    rows.target_count += rows.targets.back() >= 0 ? 1 : 0;
  }
  rows.token_count = 13;
  const auto step = [&](const std::string& of_router) {
    auto model = mixtral<fp32_recipe>::from_pretrained(golden::folder("mixtral"));
    trainer trainer(model, {.max_steps = 1, .micro_batch_size = 2, .seq_length = 8, .max_grad_norm = 1e9});
    const step_done done = trainer.step(std::span<const host_batch>(&rows, 1), 0.0);
    double squares = 0;
    for (const auto& entry : model.parameters().entries())
      if (entry.spec.name.ends_with(of_router))
        for (const float d : model.parameters().gradient(entry).host()) squares += static_cast<double>(d) * static_cast<double>(d);
    return std::vector<double>{done.loss, done.gradient_norm, std::sqrt(squares)};
  };
  // cross-entropy and 0.02 · aux_loss of transformers' MixtralForCausalLM, norms of all gradients and of the router's; sums as in check_all
  const std::vector<double> theirs{4.282595634460449, 4.707992923074313, 0.5151361579605226};
  require_close(step("gate.weight"), theirs, {.absolute = 0, .relative = 1e-5}, "padding left out");
  for (token& target : rows.targets) target = std::max(target, token{-1});  // no longer marked as padding
  CHECK(std::abs(step("gate.weight")[0] - theirs[0]) > 1e-3);
}
