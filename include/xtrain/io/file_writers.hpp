// Ranks that write files together: the first chooses the name, all report success.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// Ranks that write a file together.
class file_writers {
 public:
  virtual ~file_writers() = default;
  [[nodiscard]] virtual std::size_t rank() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Over all ranks, below 2^53; every rank gets it.
  [[nodiscard]] virtual std::size_t sum(std::size_t value) = 0;
  /// Broadcast from the first rank.
  [[nodiscard]] virtual std::string said_by_first(std::string text) = 0;

  /// Runs `work` on every rank; a failure on one throws on all.
  ///   throws  this rank's error; file_error for another rank's
  template <class Work>
  void all_do(std::string_view what, Work&& work) {
    std::exception_ptr problem;
    try {
      work();
    } catch (...) {
      problem = std::current_exception();
    }
    const std::size_t failed = sum(problem ? 1 : 0);
    if (problem) std::rethrow_exception(problem);
    require<file_error>(failed == 0, what, ": must be written by all ", size(), " ranks; ", failed, " of the others could not write their part");
  }
};

/// Ranks of a communicator with messages.
template <class Group>
class writers_of final : public file_writers {
 public:
  explicit writers_of(Group& ranks) : ranks_(&ranks) {}
  [[nodiscard]] std::size_t rank() const override { return ranks_->rank(); }
  [[nodiscard]] std::size_t size() const override { return ranks_->size(); }
  [[nodiscard]] std::size_t sum(std::size_t value) override {
    double all = static_cast<double>(value);
    ranks_->all_reduce(std::span<double>(&all, 1), reduction::sum);
    return static_cast<std::size_t>(all);
  }
  [[nodiscard]] std::string said_by_first(std::string text) override {
    std::vector<std::uint8_t> bytes(text.begin(), text.end());
    bytes.resize(sum(rank() == 0 ? bytes.size() : 0));
    if (!bytes.empty()) ranks_->broadcast(std::span<std::uint8_t>(bytes), 0);
    return {bytes.begin(), bytes.end()};
  }

 private:
  Group* ranks_;
};

}  // namespace xtrain
