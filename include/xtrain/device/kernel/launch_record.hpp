// A launched kernel with settings and operands, for comparison.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// A copy of any object with one type of deleter, unlike std::make_shared's.
template <class Object>
[[nodiscard]] std::shared_ptr<const void> copy_of(const Object& object) {
  void (*const deleter)(const void*) = [](const void* copy) { delete static_cast<const Object*>(copy); };
  return {static_cast<const void*>(new Object(object)), deleter};
}

/// A copy of a kernel of any type; operands' memory is not read.
class launch_record {
 public:
  template <class Kernel>
  explicit launch_record(const Kernel& kernel)
      : name_(Kernel::name), kernel_(copy_of(kernel)), is_same_([](const void* x, const void* y) { return is_same<Kernel>(x, y, false); }),
        is_same_shape_([](const void* x, const void* y) { return is_same<Kernel>(x, y, true); }) {}
  /// For launches that are no kernels, e.g. copies.
  template <class Other>
  launch_record(std::string_view name, const Other& other)
      : name_(name), kernel_(copy_of(other)),
        is_same_([](const void* x, const void* y) { return *static_cast<const Other*>(x) == *static_cast<const Other*>(y); }) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] const void* kernel() const { return kernel_.get(); }
  /// Equal kernel type, settings (except random numbers), operand sizes and alignments.
  [[nodiscard]] bool same_shape(const launch_record& other) const {
    return is_same_shape_ != nullptr && is_same_shape_ == other.is_same_shape_ && is_same_shape_(kernel_.get(), other.kernel_.get());
  }
  /// Equal kernel type, settings, operand addresses and sizes.
  [[nodiscard]] friend bool operator==(const launch_record& x, const launch_record& y) {
    return x.is_same_ == y.is_same_ && x.is_same_(x.kernel_.get(), y.kernel_.get());
  }

 private:
  /// Lowest bit: the alignment, at most 256.
  [[nodiscard]] static std::uintptr_t alignment_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address) | 256U; }
  template <class Field>
  [[nodiscard]] static bool is_same_field(const Field& x, const Field& y, bool shape_only) {
    if constexpr (is_operand<Field>) {
      const bool same_place = shape_only ? std::countr_zero(alignment_of(x.raw())) == std::countr_zero(alignment_of(y.raw())) : x.raw() == y.raw();
      return same_place && x.size() == y.size();
    } else if constexpr (std::is_same_v<Field, random_site>) {
      return shape_only || x == y;
    } else {
      static_assert(std::equality_comparable<Field>, "launch_record: settings of a kernel must be comparable");
      return x == y;
    }
  }
  template <class Kernel>
  [[nodiscard]] static bool is_same(const void* one, const void* other, bool shape_only) {
    const Kernel& x = *static_cast<const Kernel*>(one);
    const Kernel& y = *static_cast<const Kernel*>(other);
    bool same = true;
    Kernel::fields(x, [&](const auto&... of_x) {
      Kernel::fields(y, [&](const auto&... of_y) { same = (is_same_field(of_x, of_y, shape_only) && ...); });
    });
    return same;
  }

  std::string_view name_;
  std::shared_ptr<const void> kernel_;
  bool (*is_same_)(const void*, const void*);
  bool (*is_same_shape_)(const void*, const void*) = nullptr;  // null: no kernel
};

/// Empty: equal; otherwise a sentence about the first difference.
[[nodiscard]] inline std::string difference_of(std::span<const launch_record> one, std::span<const launch_record> other) {
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    if (!(one[i] == other[i]))
      return concat("launch ", i + 1, " of ", one.size(), " is ", one[i].name(), " and ", other[i].name(),
                    one[i].name() == other[i].name() ? ", with other settings or operands" : "");
  if (one.size() != other.size()) return concat("there are ", one.size(), " and ", other.size(), " launches");
  return {};
}

}  // namespace xtrain::kernel
