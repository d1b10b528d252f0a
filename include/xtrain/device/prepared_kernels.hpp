// Kernels that a device gets ready before it captures them: it may time how to run them, load code and allocate memory then, which it must not do while
// work is captured.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/launch_record.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain {

namespace clause {

/// Optional: stream.prepare(kernel), a template for every kernel that the device has, is called before a kernel of this shape is captured for the first
/// time: once for the same settings, sizes and alignments of operands (random numbers do not count). Operands are those of a launch, and in use: the
/// device must not write them, but may time the kernel on memory of its own. Shapes are found by a dry run of the step: while it lasts, the stream changes
/// places with one that was opened on for_dry_run(stream.device().properties()).
template <class D>
concept device_prepares_kernels = device_has_dry_run<D> && std::movable<typename D::stream> &&
    requires(typename D::stream& stream, const kernel::step_gradient_scale<typename D::memory>& kernel) {
  stream.prepare(kernel);
  D::context::for_dry_run(stream.device().properties());
};

}  // namespace clause

/// Kernels of a dry run, of different shapes, in the order in which they were first launched. `Stream` prepares them.
template <class Stream>
class kernels_to_prepare final : public launched_kernels {
 public:
  template <class Kernel>
  void add(const Kernel& kernel) {
    const kernel::launch_record what(kernel);
    for (const one& known : kernels_)
      if (known.what.same_shape(what)) return;
    kernels_.push_back({what, [](Stream& stream, const void* of) { stream.prepare(*static_cast<const Kernel*>(of)); }});
  }
  /// Those that were added since the last time.
  void prepare(Stream& stream) {
    for (; prepared_ < kernels_.size(); ++prepared_) kernels_[prepared_].prepare(stream, kernels_[prepared_].what.kernel());
  }
  [[nodiscard]] std::size_t size() const { return kernels_.size(); }

 private:
  struct one {
    kernel::launch_record what;
    void (*prepare)(Stream&, const void*);
  };
  std::vector<one> kernels_;
  std::size_t prepared_ = 0;
};

/// Tells the dry run of a device that prepares kernels what is launched.
template <class Device, class Kernel>
void note_launch([[maybe_unused]] dry_record& counts, [[maybe_unused]] const Kernel& kernel) {
  if constexpr (clause::device_prepares_kernels<Device>)
    if (counts.launched != nullptr) static_cast<kernels_to_prepare<typename Device::stream>*>(counts.launched)->add(kernel);
}

}  // namespace xtrain
