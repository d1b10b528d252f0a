// Conformance cases: sampling, and continued rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/sample.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

/// Tokens must be the reference's. Excludes draws decided by rounding, which a device may leave to the host.
template <class T, class Suite>
void check_sampling(Suite& suite) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const auto check = [&](std::size_t v, const kernel::sample<host_memory>& settings) {
      case_memory mem;
      kernel::sample<host_memory> k = settings;
      k.n = 7;
      k.v = v;
      k.capacity = 11;
      k.seed = 20240229 + v;
      const auto logits_nv = mem.numbers<float>(k.n * v, -4.0, 4.0);
      // ties; one row each with banned tokens, only banned tokens, NaN, infinity, and only zeros of both signs
      for (std::size_t j = 0; j < v; ++j) {
        if (j % 3 == 0) logits_nv.raw()[j] = std::round(logits_nv.raw()[j]);
        if (j % 4 != 1) logits_nv.raw()[v + j] = -infinity;
        logits_nv.raw()[2 * v + j] = -infinity;
        logits_nv.raw()[5 * v + j] = j % 7 == 0 ? -infinity : j % 2 == 0 ? 0.0f : -0.0f;
      }
      logits_nv.raw()[4 * v - 1] = std::numeric_limits<float>::quiet_NaN();
      logits_nv.raw()[4 * v] = infinity;
      // two rows of two tokens, both kept by min-p; other tokens are in neither
      if (k.min_p == 0.21)
        for (const std::size_t i : {std::size_t{0}, std::size_t{6}}) {
          std::fill_n(logits_nv.raw() + i * v, v, -8.0f);
          logits_nv.raw()[i * v] = 1.9f;
          logits_nv.raw()[i * v + v - 1] = 2.0f;
        }
      k.logits_nv = device_span<const float, host_memory>(logits_nv);
      if (k.repetition_penalty != 1.0) {
        const auto text_nc = mem.tokens(k.n * k.capacity, v);
        k.text_nc = device_span<const token, host_memory>(text_nc);  // the first row has tokens that do not exist
        const auto last_n = mem.tokens(k.n, k.capacity);
        for (const std::size_t i : {std::size_t{1}, std::size_t{3}, std::size_t{6}}) last_n.raw()[i] = 5;
        // in the last row, token 0 is most likely if penalised once, otherwise the text's last token
        for (std::size_t j = 0; j < v; ++j) logits_nv.raw()[6 * v + j] = std::min(logits_nv.raw()[6 * v + j], 2.0f);
        logits_nv.raw()[6 * v] = 4.3f;
        logits_nv.raw()[7 * v - 1] = 4.1f;
        for (std::size_t j = 0; j < 6; ++j) text_nc.raw()[6 * k.capacity + j] = j < 5 ? 0 : static_cast<token>(v - 1);
        k.last_n = device_span<const token, host_memory>(last_n);
      }
      if (k.temperature != 0.0) {
        k.place_n = mem.tokens(k.n, 1000);
        k.sequence_n = mem.tokens(k.n, 1000);
      }
      k.token_n = mem.tokens(k.n, v);
      suite.template check_kernel<T>(k, 0.0, 0.0);
    };
    for (const std::size_t v : {1U, 7U, 130U, 1500U}) {
      check(v, {});
      check(v, {.repetition_penalty = 1.5});
      check(v, {.temperature = 0.7});
      check(v, {.temperature = 1.0, .top_k = 5});
      check(v, {.temperature = 1.3, .top_p = 0.83});
      check(v, {.temperature = 1.0, .min_p = 0.21});
      check(v, {.temperature = 0.9, .top_k = 40, .top_p = 0.71, .min_p = 0.03, .repetition_penalty = 1.2});
    }
    case_memory mem;
    kernel::advance<host_memory> k{.n = 300, .most = 3, .capacity = 20};
    const auto token_n = mem.tokens(k.n, 50), room_n = mem.tokens(k.n, 4), count_n = mem.tokens(k.n, 4), position_n = mem.tokens(k.n, 19);
    for (const auto& some : {room_n, count_n, position_n}) some.raw()[1] = some.raw()[3] = 2;
    for (std::size_t i = 0; i < k.n; ++i) count_n.raw()[i] = std::min(count_n.raw()[i], room_n.raw()[i]);
    k.token_n = device_span<const token, host_memory>(token_n);
    k.room_n = device_span<const token, host_memory>(room_n);
    for (const bool with_text : {false, true}) {
      k.count_n = mem.copy(count_n);
      k.position_n = mem.copy(position_n);
      k.taken_nm = mem.tokens(k.n * k.most, 50);
      k.next_n = mem.tokens(k.n, 50);
      k.cached_n = mem.tokens(k.n, 50);
      k.place_n = mem.tokens(k.n, 50);
      if (with_text) k.text_nc = mem.tokens(k.n * k.capacity, 50);
      suite.template check_kernel<T>(k, 0.0, 0.0);
    }
  }
}

}  // namespace xtrain::testing::detail
