// What a call of CANN's operators without an NPU describes, and the checks that operators share.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/operators.hpp>

namespace xtrain::testing {

namespace detail {

/// What a handle of a tensor describes.
struct fake_tensor {
  npu_type type = npu_type::fp32;
  std::vector<std::int64_t> dims{}, strides{};
  std::int64_t offset = 0, storage = 0;
  std::byte* data = nullptr;
  bool is_live = true;

  [[nodiscard]] std::size_t elements() const {
    std::size_t all = 1;
    for (const std::int64_t dim : dims) all *= static_cast<std::size_t>(dim);
    return all;
  }
  [[nodiscard]] std::size_t size() const { return bytes_of(type); }
  [[nodiscard]] std::byte* first() const { return data + static_cast<std::size_t>(offset) * size(); }
  /// Elements from the first to behind the last one.
  [[nodiscard]] std::size_t extent() const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0) return 0;
      last += (dims[i] - 1) * strides[i];
    }
    return static_cast<std::size_t>(last) + 1;
  }
  [[nodiscard]] bool is_dense() const {
    std::int64_t stride = 1;
    for (std::size_t i = dims.size(); i-- > 0;) {
      if (dims[i] != 1 && strides[i] != stride) return false;
      stride *= dims[i];
    }
    return true;
  }
  [[nodiscard]] std::string text() const {
    std::string all = concat(name_of(type), "[");
    for (std::size_t i = 0; i < dims.size(); ++i) all += concat(i == 0 ? "" : ",", dims[i]);
    return all + "]";
  }
  /// Calls f(distance from the first element) for every index of these dims, which the tensor's are broadcast to.
  template <class F>
  void for_each(const std::vector<std::int64_t>& all, F&& f) const {
    const std::size_t rank = all.size(), missing = rank - dims.size();
    std::vector<std::int64_t> step(rank, 0), index(rank, 0);
    for (std::size_t i = 0; i < dims.size(); ++i) step[missing + i] = dims[i] == 1 ? 0 : strides[i];
    std::size_t count = 1;
    for (const std::int64_t dim : all) count *= static_cast<std::size_t>(dim);
    std::int64_t at = 0;
    for (std::size_t n = 0; n < count; ++n) {
      f(at);
      for (std::size_t i = rank; i-- > 0;) {
        at += step[i];
        if (++index[i] < all[i]) break;
        at -= step[i] * all[i];
        index[i] = 0;
      }
    }
  }
};

struct fake_scalar {
  double value = 0;
  npu_type type = npu_type::fp32;
};
using fake_ints = std::vector<std::int64_t>;

/// What an operator refuses, with the documented code.
struct fake_refusal {
  int status;
  std::string why;
};

using fake_values = std::vector<double>;

/// The elements, broadcast to these dims.
[[nodiscard]] inline fake_values load(const fake_tensor& from, const std::vector<std::int64_t>& dims) {
  fake_values all;
  const auto read = [&]<class T>(T) {
    const std::byte* const first = from.first();
    from.for_each(dims, [&](std::int64_t at) {
      T value;
      std::memcpy(&value, first + at * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      all.push_back(static_cast<double>(value));
    });
  };
  switch (from.type) {
    case npu_type::fp32: read(float{}); break;
    case npu_type::bf16: read(bf16{}); break;
    case npu_type::fp16: read(fp16{}); break;
    case npu_type::fp64: read(double{}); break;
    case npu_type::int32: read(std::int32_t{}); break;
    case npu_type::int64: read(std::int64_t{}); break;
    case npu_type::int8: read(std::int8_t{}); break;
    default: read(std::uint8_t{}); break;
  }
  return all;
}
[[nodiscard]] inline fake_values load(const fake_tensor& from) { return load(from, from.dims); }
/// Rounds to the tensor's type.
inline void store(const fake_tensor& to, const fake_values& values) {
  std::size_t next = 0;
  const auto write = [&]<class T>(T) {
    std::byte* const first = to.first();
    to.for_each(to.dims, [&](std::int64_t at) {
      const T value = static_cast<T>(values[next++]);
      std::memcpy(first + at * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
    });
  };
  switch (to.type) {
    case npu_type::fp32: return write(float{});
    case npu_type::bf16: return write(bf16{});
    case npu_type::fp16: return write(fp16{});
    case npu_type::fp64: return write(double{});
    case npu_type::int32: return write(std::int32_t{});
    case npu_type::int64: return write(std::int64_t{});
    case npu_type::int8: return write(std::int8_t{});
    case npu_type::boolean:
      for (const double value : values)
        if (value != 0 && value != 1) return write(std::uint8_t{0xFF});
      return write(std::uint8_t{});
    default: return write(std::uint8_t{});
  }
}

}  // namespace detail

struct fake_ascend_operators_config {
  npu_chip chip = npu_chip::second;
  xtrain::cann_version cann{9, 1, 0};
  bool is_deterministic = true;        ///< else sums without a documented order are in another one
  std::vector<std::string> missing{};  ///< names of operators that this CANN does not have
  std::uint64_t most_workspace = 4096; ///< sizes are drawn below this
};

/// One exists at a time: the table's functions have no other argument to find it by.
class fake_ascend_operators {
 public:
  /// What an operator computes, and the memory that it uses.
  struct work {
    std::string name{};
    std::vector<std::pair<const void*, std::size_t>> ranges{};
    std::function<void()> compute{};
  };
  explicit fake_ascend_operators(fake_ascend_operators_config settings = {});
  ~fake_ascend_operators() { self() = nullptr; }
  fake_ascend_operators(const fake_ascend_operators&) = delete;
  fake_ascend_operators& operator=(const fake_ascend_operators&) = delete;

  [[nodiscard]] const npu_operators& table() const { return table_; }
  [[nodiscard]] npu_operators& table() { return table_; }

  /// Puts work into the order of a stream; until it is set, work runs when it is queued. Returns a status.
  std::function<int(void* stream, work)> enqueue{};

  /// The n-th first phase from now, counted from 1, fails with this status.
  void fail_call(std::size_t n, int status) {
    const std::lock_guard lock(mutex_);
    failing_call_ = n;
    failing_status_ = status;
  }
  /// Calls of operators since the last reset.
  [[nodiscard]] std::size_t launches() const { return launches_; }
  [[nodiscard]] const std::map<std::string, std::size_t, std::less<>>& launches_by_name() const { return launches_by_name_; }
  void reset_launches() {
    launches_ = 0;
    launches_by_name_.clear();
  }
  /// What a caller must not do and did, where the documentation names no status; a line each.
  [[nodiscard]] std::string violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  /// What was made and not destroyed; empty if nothing.
  [[nodiscard]] std::string leaks() const {
    const std::lock_guard lock(mutex_);
    std::string all;
    const auto count = [&](std::string_view what, std::size_t n) {
      if (n != 0) all += concat(n, " ", what, "; ");
    };
    count("tensors", tensors_.size());
    count("scalars", scalars_.size());
    count("lists of integers", ints_.size());
    count("lists of flags", bools_.size());
    count("executors", executors_.size());
    return all;
  }

  // of the table's functions
  using tensor = detail::fake_tensor;
  struct executor {
    std::size_t index = 0;
    std::string name{};
    std::function<void()> compute{};
    std::vector<const tensor*> handles{};
    std::vector<tensor> operands{};
    std::uint64_t workspace = 0;
    bool is_repeatable = false;
    bool copies = false;  ///< it cannot run again
    std::size_t runs = 0;
  };
  class call;
  struct operations;
  [[nodiscard]] static fake_ascend_operators*& self() {
    static fake_ascend_operators* instance = nullptr;
    return instance;
  }
  [[nodiscard]] const fake_ascend_operators_config& settings() const { return settings_; }
  [[nodiscard]] int first_phase(std::size_t index, const std::function<void(call&)>& check, std::uint64_t* bytes, aclOpExecutor** out);
  [[nodiscard]] int second_phase(std::size_t index, void* workspace, std::uint64_t bytes, aclOpExecutor* of, void* stream);

 private:
  friend struct fake_ascend_objects;
  void violate(const std::string& what) { violations_ += what + "\n"; }
  [[nodiscard]] int say(int status, std::string why) {
    message_ = std::move(why);
    return status;
  }
  static npu_operators make_table(const fake_ascend_operators_config& settings);

  fake_ascend_operators_config settings_;
  npu_operators table_;
  mutable std::mutex mutex_{};
  std::map<const void*, std::unique_ptr<tensor>> tensors_{};
  std::map<const void*, std::unique_ptr<detail::fake_scalar>> scalars_{};
  std::map<const void*, std::unique_ptr<detail::fake_ints>> ints_{};
  std::map<const void*, std::unique_ptr<std::vector<bool>>> bools_{};
  std::map<void*, std::unique_ptr<executor>> executors_{};
  std::map<std::string, std::size_t, std::less<>> launches_by_name_{};
  std::size_t launches_ = 0, calls_ = 0, failing_call_ = 0;
  int failing_status_ = 0;
  std::string violations_{}, message_{}, told_{};
};

/// The checks of a first phase, and what its second phase computes.
class fake_ascend_operators::call {
 public:
  call(fake_ascend_operators& fake, executor& making) : fake_(fake), making_(making) {}

  [[noreturn]] void refuse(int status, const std::string& why) const { throw detail::fake_refusal{status, concat(making_.name, ": ", why)}; }
  void need(bool holds, int status, const std::string& why) const {
    if (!holds) refuse(status, why);
  }
  /// An invalid argument.
  void need(bool holds, const std::string& why) const { need(holds, npu_operator_status::invalid_argument, why); }
  [[nodiscard]] bool is_first_chip() const { return fake_.settings().chip == npu_chip::first; }
  [[nodiscard]] const cann_version& version() const { return fake_.settings().cann; }
  [[nodiscard]] bool is_deterministic() const { return fake_.settings().is_deterministic; }
  /// 910A: not there.
  void need_second_chip() const { need(!is_first_chip(), npu_operator_status::no_kernel, "this chip has no such operator"); }

  [[nodiscard]] const tensor& in(const aclTensor* handle) { return operand(handle); }
  /// None if it is not given.
  [[nodiscard]] const tensor* optional(const aclTensor* handle) { return handle == nullptr ? nullptr : &operand(handle); }
  [[nodiscard]] std::vector<bool> flags(const aclBoolArray* handle) const {
    need(handle != nullptr, npu_operator_status::null_argument, "a list of flags is null");
    const auto found = fake_.bools_.find(handle);
    need(found != fake_.bools_.end(), "a list of flags is not one, or was destroyed");
    return *found->second;
  }
  [[nodiscard]] const tensor& out(const aclTensor* handle) {
    const tensor& to = operand(handle);
    for (const tensor& other : making_.operands)
      if (&other != &making_.operands.back()) need(!overlap(other, to), "the result shares memory with another operand");
    return to;
  }
  /// Read and written.
  [[nodiscard]] const tensor& in_place(const aclTensor* handle) { return operand(handle); }
  /// What an operator in place reads must not share memory with it, unless it is the same.
  void check_aliases(const tensor& target) const {
    for (const tensor& other : making_.operands)
      if (&other != &target && overlap(other, target))
        need(other.first() == target.first() && other.strides == target.strides && other.dims == target.dims, "an operand shares part of the target's memory");
  }
  [[nodiscard]] double number(const aclScalar* handle) const {
    need(handle != nullptr, npu_operator_status::null_argument, "a scalar is null");
    const auto found = fake_.scalars_.find(handle);
    need(found != fake_.scalars_.end(), "a scalar is not one, or was destroyed");
    return found->second->value;
  }
  [[nodiscard]] const detail::fake_ints& integers(const aclIntArray* handle) const {
    need(handle != nullptr, npu_operator_status::null_argument, "a list of integers is null");
    const auto found = fake_.ints_.find(handle);
    need(found != fake_.ints_.end(), "a list of integers is not one, or was destroyed");
    return *found->second;
  }

  void need_types(const tensor& of, std::initializer_list<npu_type> types) const {
    need(std::find(types.begin(), types.end(), of.type) != types.end(), concat("type ", name_of(of.type), " is not supported"));
  }
  /// fp32, fp16 and, not on the first chip, bf16.
  void need_number(const tensor& of) const {
    need_types(of, {npu_type::fp32, npu_type::fp16, npu_type::bf16});
  }
  void need_number_or_double(const tensor& of) const { need_types(of, {npu_type::fp32, npu_type::fp16, npu_type::bf16, npu_type::fp64}); }
  void need_dims(const tensor& of, const std::vector<std::int64_t>& dims, int status = npu_operator_status::invalid_argument) const {
    if (of.dims == dims) return;
    tensor expected = of;
    expected.dims = dims;
    refuse(status, concat("a shape must be ", expected.text(), "; given ", of.text()));
  }
  void need_dense(const tensor& of) const { need(of.is_dense(), concat("the result must be contiguous: ", of.text())); }
  void need_rank(const tensor& of, std::size_t rank) const { need(of.dims.size() == rank, concat("the rank must be ", rank, ": ", of.text())); }
  void need_elements(const tensor& of) const { need(of.elements() != 0, concat("an empty tensor is not supported: ", of.text())); }
  [[nodiscard]] std::vector<std::int64_t> broadcast(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) const {
    std::vector<std::int64_t> all(std::max(a.size(), b.size()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
      need(x == y || x == 1 || y == 1, concat("dims ", x, " and ", y, " cannot be broadcast"));
      all[all.size() - 1 - i] = x == 1 ? y : x;
    }
    return all;
  }
  [[nodiscard]] static bool is_float(npu_type type) {
    return type == npu_type::fp32 || type == npu_type::fp16 || type == npu_type::bf16 || type == npu_type::fp64;
  }
  /// Of both operands.
  [[nodiscard]] npu_type promoted(npu_type a, npu_type b) const {
    if (a == b) return a;
    if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
    if (a == npu_type::fp64 || b == npu_type::fp64) return npu_type::fp64;
    if (is_float(a)) return npu_type::fp32;
    return bytes_of(a) > bytes_of(b) ? a : b;
  }
  void need_convertible(npu_type from, const tensor& to) const {
    need(!is_float(from) || is_float(to.type), concat("a result of ", name_of(from), " cannot become ", name_of(to.type)));
  }
  /// A dim, counted from the end if negative.
  [[nodiscard]] std::size_t dim_of(const tensor& of, std::int64_t dim) const {
    const auto rank = static_cast<std::int64_t>(of.dims.size());
    need(dim >= -rank && dim < rank, concat("dim ", dim, " is out of range of ", of.text()));
    return static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
  }
  void compute(std::function<void()> f) const { making_.compute = std::move(f); }
  /// It copies inside: its executor cannot run again.
  void copies() const { making_.copies = true; }

 private:
  [[nodiscard]] const tensor& operand(const aclTensor* handle) {
    need(handle != nullptr, npu_operator_status::null_argument, "a tensor is null");
    const auto found = fake_.tensors_.find(handle);
    need(found != fake_.tensors_.end(), "a tensor is not one, or was destroyed");
    making_.handles.push_back(found->second.get());
    making_.operands.reserve(32);  // references stay
    making_.operands.push_back(*found->second);
    const tensor& of = making_.operands.back();
    need(!(is_first_chip() && of.type == npu_type::bf16), "this chip has no bf16");
    need(of.dims.size() <= npu_max_rank, concat("a tensor has more than 8 dims: ", of.text()));
    return of;
  }
  [[nodiscard]] static bool overlap(const tensor& a, const tensor& b) {
    const std::byte *const a_end = a.first() + a.extent() * a.size(), *const b_end = b.first() + b.extent() * b.size();
    if (a.first() >= b_end || b.first() >= a_end) return false;
    // strided views of the same rows may lie between one another
    if (a.type == b.type && a.dims.size() == b.dims.size() && a.strides == b.strides && a.first() != b.first()) {
      const auto distance = static_cast<std::size_t>(a.first() > b.first() ? a.first() - b.first() : b.first() - a.first()) / a.size();
      const tensor& lower = a.first() < b.first() ? a : b;
      for (std::size_t i = 0; i + 1 < lower.dims.size(); ++i) {
        tensor row = lower;
        row.dims.erase(row.dims.begin(), row.dims.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        row.strides.erase(row.strides.begin(), row.strides.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        tensor next = a.first() < b.first() ? b : a;
        next.dims.erase(next.dims.begin(), next.dims.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        next.strides = row.strides;
        if (distance >= row.extent() && distance + next.extent() <= static_cast<std::size_t>(lower.strides[i])) return false;
      }
    }
    return true;
  }
  fake_ascend_operators& fake_;
  executor& making_;
};

}  // namespace xtrain::testing
