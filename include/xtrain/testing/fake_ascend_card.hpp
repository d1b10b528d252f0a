// A fake AscendCL with fake operators: what a test opens as a card.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <xtrain/device/npu/npu.hpp>
#include <xtrain/testing/fake_ascend.hpp>
#include <xtrain/testing/fake_ascend_operators.hpp>

namespace xtrain::testing {

/// Operators work late, in the order of their stream; a range that is not allocated then, or on another device, fails.
class fake_ascend_card {
 public:
  explicit fake_ascend_card(const fake_ascend_config& settings = {}, fake_ascend_operators_config operators = {})
      : runtime_(settings), operators_(fitting(settings, std::move(operators))) {
    operators_.enqueue = [this](void* stream, fake_ascend_operators::work work) {
      return runtime_.locked([&] {
        if (const std::string why = problem_of(work); !why.empty()) return runtime_.note_violation(npu_status::runtime_parameter, why);
        return runtime_.queue_work(stream, work.name.c_str(), [this, work] {
          if (const std::string why = problem_of(work); !why.empty()) return runtime_.note_violation(npu_status::ai_core_exception, why);
          try {
            work.compute();
          } catch (const detail::fake_refusal& refusal) {
            fake_ascend::set_message(refusal.why);
            return refusal.status;
          }
          return npu_status::success;
        });
      });
    };
  }

  [[nodiscard]] fake_ascend& runtime() { return runtime_; }
  [[nodiscard]] fake_ascend_operators& operators() { return operators_; }
  [[nodiscard]] npu_context open(const npu_operator_settings& settings = {.workspace_floor = 8192}, int device = 0) const {
    return npu_context(
        npu_config{.device = device, .operator_settings = settings, .runtime = &runtime_.runtime(), .operators = &operators_.table()});
  }
  [[nodiscard]] std::string violations() const { return runtime_.violations() + operators_.violations(); }
  [[nodiscard]] std::string leaks() const { return runtime_.leaks() + operators_.leaks(); }

 private:
  static fake_ascend_operators_config fitting(const fake_ascend_config& card, fake_ascend_operators_config operators) {
    operators.chip = xtrain::detail::generation_of(card.soc) == npu_generation::first ? npu_chip::first : npu_chip::second;
    operators.cann = card.version;
    return operators;
  }
  [[nodiscard]] std::string problem_of(const fake_ascend_operators::work& work) {
    for (const auto& [first, bytes] : work.ranges)
      if (const std::string why = runtime_.problem_of(first, bytes, fake_ascend::current_device() < 0 ? 0 : fake_ascend::current_device(), work.name.c_str());
          !why.empty())
        return why;
    return {};
  }
  fake_ascend runtime_;
  fake_ascend_operators operators_;
};

}  // namespace xtrain::testing
