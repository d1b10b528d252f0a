// The reference device: every kernel as its formula, in any dtype; the standard for all devices.
#pragma once

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/reference/activation.hpp>
#include <xtrain/device/reference/attention.hpp>
#include <xtrain/device/reference/attention_block.hpp>
#include <xtrain/device/reference/blocks.hpp>
#include <xtrain/device/reference/distillation.hpp>
#include <xtrain/device/reference/elementwise.hpp>
#include <xtrain/device/reference/embedding.hpp>
#include <xtrain/device/reference/experts.hpp>
#include <xtrain/device/reference/fake_quantize.hpp>
#include <xtrain/device/reference/grpo.hpp>
#include <xtrain/device/reference/loss.hpp>
#include <xtrain/device/reference/matmul.hpp>
#include <xtrain/device/reference/matrix_optimizer.hpp>
#include <xtrain/device/reference/nf4.hpp>
#include <xtrain/device/reference/norm.hpp>
#include <xtrain/device/reference/optimizer.hpp>
#include <xtrain/device/reference/preference.hpp>
#include <xtrain/device/reference/row_integers.hpp>
#include <xtrain/device/reference/sample.hpp>
#include <xtrain/device/reference/split_loss.hpp>
#include <xtrain/device/reference/step_scalars.hpp>
#include <xtrain/device/reference/stream.hpp>
#include <xtrain/device/reference/value_loss.hpp>

namespace xtrain {

/// Each kernel as its formula, element by element, in host memory.
struct reference {
  static constexpr std::string_view name = "reference";
  using memory = host_memory;

  struct properties {};

  struct config {
    std::size_t memory_limit = 0;  ///< bytes; 0: what the machine allows
  };

  class context : public host_context {
   public:
    explicit context(config settings) : host_context(settings.memory_limit) {}
    context() : context(config{}) {}
    [[nodiscard]] static context for_dry_run(const reference::properties&) { return context(dry_run_t{}); }
    [[nodiscard]] reference::properties properties() const { return {}; }

   private:
    explicit context(dry_run_t nothing_real) : host_context(nothing_real) {}
  };

  using stream = reference_stream;
};

static_assert(device<reference> && clause::device_has_dry_run<reference>);

}  // namespace xtrain
