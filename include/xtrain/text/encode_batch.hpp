// Encodes many texts on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Tokens of every text, in order; independent of the number of threads.
///   threads  0: one per processor; fewer if the system cannot start so many
///   throws   as encode, for the first text that fails
template <class Text>
[[nodiscard]] std::vector<std::vector<token>> encode_batch(const tokenizer& with, std::span<const Text> texts, std::size_t threads = 0) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  constexpr std::size_t share = 16;  // texts per turn of a thread
  threads = std::min(threads, (texts.size() + share - 1) / share);
  std::vector<std::vector<token>> results(texts.size());
  std::atomic<std::size_t> next = 0;
  std::mutex guard;
  std::exception_ptr problem;
  std::size_t problem_at = texts.size();
  const auto work = [&] {
    for (std::size_t begin = next.fetch_add(share); begin < texts.size(); begin = next.fetch_add(share))
      for (std::size_t i = begin; i < std::min(begin + share, texts.size()); ++i) {
        try {
          results[i] = with.encode(std::string_view(texts[i]));
        } catch (...) {
          const std::lock_guard hold(guard);
          if (i < problem_at) {
            problem_at = i;
            problem = std::current_exception();
          }
        }
      }
  };
  std::vector<std::thread> workers;
  workers.reserve(threads);
  try {
    for (std::size_t i = 1; i < threads; ++i) workers.emplace_back(work);
  } catch (const std::system_error&) {  // continue with started threads
  }
  work();
  for (std::thread& worker : workers) worker.join();
  if (problem) std::rethrow_exception(problem);
  return results;
}
[[nodiscard]] inline std::vector<std::vector<token>> encode_batch(const tokenizer& with, const std::vector<std::string>& texts,
                                                                  std::size_t threads = 0) {
  return encode_batch(with, std::span<const std::string>(texts), threads);
}

}  // namespace xtrain
