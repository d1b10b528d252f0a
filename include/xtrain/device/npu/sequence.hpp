// The operators of one kernel, queued one after the other, and the scratch memory between them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/operators.hpp>
#include <xtrain/device/npu/runtime.hpp>

namespace xtrain {

namespace detail {

/// An argument of an operator. Destroyed with its owner.
template <class Object>
class npu_argument {
 public:
  using destroy_function = int (*)(const Object*);
  npu_argument() = default;
  npu_argument(Object* object, destroy_function destroy) : object_(object), destroy_(destroy) {}
  npu_argument(npu_argument&& other) noexcept : object_(std::exchange(other.object_, nullptr)), destroy_(other.destroy_) {}
  npu_argument& operator=(npu_argument&&) = delete;
  ~npu_argument() {
    if (object_ != nullptr) (void)destroy_(object_);
  }
  [[nodiscard]] Object* get() const { return object_; }

 private:
  Object* object_ = nullptr;
  destroy_function destroy_ = nullptr;
};

[[nodiscard]] constexpr std::size_t npu_rounded_up(std::size_t bytes, std::size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace detail

/// Queues operators, or only counts what they need: a kernel's scratch memory is what its own composition takes.
/// Scratch memory is a stack: pieces, and above them the workspace of the operator that runs.
class npu_sequence {
 public:
  /// Counts: nothing is queued, and addresses are not used.
  explicit npu_sequence(const npu_operator_rules& rules, const npu_operators* operators = nullptr) : rules_(&rules), operators_(operators) {}
  /// Queues on a stream.
  npu_sequence(const npu_operators& operators, const npu_operator_rules& rules, void* queue, std::string_view kernel, std::uintptr_t scratch,
               std::size_t bytes)
      : rules_(&rules), operators_(&operators), queue_(queue), kernel_(kernel), is_counting_(false) {
    top_ = first_ = detail::npu_rounded_up(scratch, npu_piece_alignment);
    end_ = scratch + bytes;
  }

  [[nodiscard]] const npu_operator_rules& rules() const { return *rules_; }
  /// Bytes of scratch memory that were needed at the same time.
  [[nodiscard]] std::size_t peak() const { return peak_ == 0 ? 0 : peak_ + npu_piece_alignment + workspace_alignment; }
  [[nodiscard]] std::size_t launches() const { return launches_; }
  /// When counting: names of operators that the table or the chip lacks.
  [[nodiscard]] const std::vector<std::string_view>& missing() const { return missing_; }

  /// A piece of scratch memory.
  [[nodiscard]] npu_view fresh(npu_type type, std::initializer_list<std::size_t> dims) {
    const npu_view view = npu_view::dense(type, top_, dims);
    const std::size_t bytes = detail::npu_rounded_up(view.elements() * bytes_of(type), npu_tensor_alignment) + npu_piece_tail;
    top_ += detail::npu_rounded_up(bytes, npu_piece_alignment);
    peak_ = std::max(peak_, top_ - first_);
    if (!is_counting_ && top_ > end_) too_little("scratch memory", top_ - first_);
    return view;
  }
  /// One like another, dense.
  [[nodiscard]] npu_view fresh_like(const npu_view& view, npu_type type = npu_type::fp32) {
    npu_view all = fresh(type, {view.elements()});
    all.rank = view.rank;
    all.dims = view.dims;
    std::int64_t stride = 1;
    for (std::size_t i = view.rank; i-- > 0; stride *= all.dims[i]) all.strides[i] = stride;
    return all;
  }
  /// Pieces that were taken since are given back when it ends.
  class scope {
   public:
    explicit scope(npu_sequence& sequence) : sequence_(&sequence), top_(sequence.top_) {}
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;
    ~scope() { sequence_->top_ = top_; }

   private:
    npu_sequence* sequence_;
    std::uintptr_t top_;
  };

  /// Queues an operator.
  ///   throws  npu_error: kernel, operator, operands, status and the vendor's message
  template <class... Argument, class... Given>
  void run(const npu_operator<Argument...>& op, const Given&... given) {
    static_assert(sizeof...(Argument) == sizeof...(Given), "npu_sequence::run: an operator must be given each of its arguments");
    ++launches_;
    const std::size_t allowed = allowance({bytes_of_argument(given)...});
    peak_ = std::max(peak_, workspace_begin() - first_ + allowed);
    if (is_counting_) return note(op.index, (is_of(given, npu_type::bf16) || ...), (is_of(given, npu_type::fp32) || ...));
    std::uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    const auto describe = [&] { return described({text_of(given)...}); };
    require_entry(op.index);
    const npu_operators::entry& entry = operators_->entries[op.index];
    const auto arguments = std::make_tuple(made(given)...);
    const auto size = reinterpret_cast<typename npu_operator<Argument...>::size_function>(entry.size);
    const int status = std::apply([&](const auto&... all) { return size(static_cast<Argument>(passed(all))..., &bytes, &executor); }, arguments);
    if (status != npu_operator_status::success) refuse(op.name, "GetWorkspaceSize", status, describe());
    void* const workspace = workspace_of(op.name, bytes, allowed, executor);
    const int run_status = entry.run(workspace, bytes, executor, queue_);
    if (run_status != npu_operator_status::success) refuse(op.name, "", run_status, describe());
  }

 private:
  static constexpr std::size_t workspace_alignment = 512;
  // Each operator may have the floor, and as much as its operands in fp32: copies of strided ones, casts, partial sums.
  [[nodiscard]] std::size_t allowance(std::initializer_list<std::size_t> operands) const {
    std::size_t bytes = rules_->settings.workspace_floor;
    for (const std::size_t operand : operands) bytes += operand;
    return bytes;
  }
  [[nodiscard]] std::uintptr_t workspace_begin() const { return detail::npu_rounded_up(top_, workspace_alignment); }
  [[nodiscard]] static std::size_t bytes_of_argument(const npu_view& view) {
    return detail::npu_rounded_up(view.elements() * std::max<std::size_t>(4, bytes_of(view.type)), workspace_alignment);
  }
  template <class Other>
  [[nodiscard]] static std::size_t bytes_of_argument(const Other&) {
    return 0;
  }

  [[nodiscard]] detail::npu_argument<aclTensor> made(const npu_view& view) const {
    const std::size_t size = bytes_of(view.type), past = view.address % npu_tensor_alignment;
    require<npu_error>(past % size == 0, "npu: kernel ", kernel_, ": an operand must begin at a multiple of its element's ", size,
                                " bytes; given: ", view.text(), " at ", view.address);
    const auto offset = static_cast<std::int64_t>(past / size), extent = static_cast<std::int64_t>(view.extent()) + offset;
    aclTensor* const tensor =
        operators_->objects.create_tensor(view.dims.data(), view.rank, static_cast<int>(view.type), view.strides.data(), offset, 2, &extent, 1,
                                          reinterpret_cast<void*>(view.address - past));
    require<npu_error>(tensor != nullptr, "npu: kernel ", kernel_, ": aclCreateTensor failed for ", view.text(), message());
    return {tensor, operators_->objects.destroy_tensor};
  }
  [[nodiscard]] detail::npu_argument<aclScalar> made(const npu_scalar& scalar) const {
    auto fp32 = static_cast<float>(scalar.value);
    double fp64 = scalar.value;
    auto int32 = static_cast<std::int32_t>(scalar.value);
    auto int64 = static_cast<std::int64_t>(scalar.value);
    void* const value = scalar.type == npu_type::fp64    ? static_cast<void*>(&fp64)
                        : scalar.type == npu_type::int32 ? static_cast<void*>(&int32)
                        : scalar.type == npu_type::int64 ? static_cast<void*>(&int64)
                                                         : static_cast<void*>(&fp32);
    return {operators_->objects.create_scalar(value, static_cast<int>(scalar.type)), operators_->objects.destroy_scalar};
  }
  [[nodiscard]] detail::npu_argument<aclIntArray> made(const npu_ints& list) const {
    return {operators_->objects.create_ints(list.values.data(), list.count), operators_->objects.destroy_ints};
  }
  [[nodiscard]] detail::npu_argument<aclBoolArray> made(const npu_bools& list) const {
    return {operators_->objects.create_bools(list.values.data(), list.values.size()), operators_->objects.destroy_bools};
  }
  [[nodiscard]] static npu_none made(npu_none) { return {}; }
  [[nodiscard]] static const char* made(const char* text) { return text; }
  [[nodiscard]] static int made(npu_type type) { return static_cast<int>(type); }
  template <class T>
  requires std::is_arithmetic_v<T>
  [[nodiscard]] static T made(T value) { return value; }

  template <class Object>
  [[nodiscard]] static Object* passed(const detail::npu_argument<Object>& argument) {
    return argument.get();
  }
  [[nodiscard]] static std::nullptr_t passed(npu_none) { return nullptr; }
  [[nodiscard]] static char* passed(const char* text) { return const_cast<char*>(text); }
  template <class T>
  requires std::is_arithmetic_v<T>
  [[nodiscard]] static T passed(T value) { return value; }

  [[nodiscard]] static std::string text_of(const npu_view& view) { return view.text(); }
  [[nodiscard]] static std::string text_of(const npu_scalar& scalar) { return concat(scalar.value); }
  template <class Other>
  [[nodiscard]] static std::string text_of(const Other&) {
    return "";
  }
  [[nodiscard]] static std::string described(std::initializer_list<std::string> all) {
    std::string text;
    for (const std::string& one : all)
      if (!one.empty()) text += concat(text.empty() ? "" : ", ", one);
    return text;
  }

  [[nodiscard]] std::string message() const {
    const char* const text = operators_->objects.recent_error == nullptr ? nullptr : operators_->objects.recent_error();
    return text == nullptr || *text == 0 ? std::string() : concat("; CANN says: ", text);
  }
  [[noreturn]] void refuse(std::string_view op, std::string_view phase, int status, const std::string& operands) const {
    fail<npu_error>("npu: kernel ", kernel_, ": ", op, phase, "(", operands, ") failed: ", npu_operator_status::text(status), " (", status, ")",
                             message());
  }
  void require_entry(std::size_t index) const {
    require<npu_error>(operators_->has(index), "npu: kernel ", kernel_, " needs the operator ", npu_op::names[index],
                           ", which CANN ", rules_->cann.text(), " does not have");
  }
  [[nodiscard]] static bool is_of(const npu_view& view, npu_type type) { return view.type == type; }
  template <class Other>
  [[nodiscard]] static bool is_of(const Other&, npu_type) {
    return false;
  }
  /// Of an operator that the table lacks, or that the first chip does not have for these types.
  void note(std::size_t index, bool has_bf16, bool has_fp32) {
    const auto is_one_of = [&](auto... places) { return ((index == static_cast<std::size_t>(places)) || ...); };
    using place = npu_op::place;
    const bool is_product = is_one_of(place::mm, place::addmm, place::inplace_addmm, place::batch_matmul);
    const bool is_new = is_one_of(place::exp, place::log, place::rms_norm, place::swi_glu, place::grouped_matmul_add, place::flash_attention,
                                   place::moe_permute, place::moe_unpermute);
    const bool is_unknown = rules_->chip == npu_chip::first && (has_bf16 || is_new || (is_product && has_fp32));
    if (!is_unknown && (operators_ == nullptr || operators_->has(index))) return;
    if (std::find(missing_.begin(), missing_.end(), npu_op::names[index]) == missing_.end()) missing_.push_back(npu_op::names[index]);
  }
  [[noreturn]] void too_little(std::string_view what, std::size_t needed) const {
    fail<npu_error>("npu: kernel ", kernel_, ": ", what, " must be as large as planned; needed are ", bytes_text(needed), ", there are ",
                             bytes_text(end_ > first_ ? end_ - first_ : 0));
  }
  /// Memory for an operator; its executor is destroyed if there is too little.
  [[nodiscard]] void* workspace_of(std::string_view op, std::uint64_t bytes, std::size_t allowed, aclOpExecutor* executor) const {
    if (bytes == 0) return nullptr;
    const std::uintptr_t begin = workspace_begin();
    if (bytes <= allowed && begin + bytes <= end_) return reinterpret_cast<void*>(begin);
    if (operators_->objects.set_repeatable(executor) == npu_operator_status::success) (void)operators_->objects.destroy_executor(executor);
    fail<npu_error>("npu: kernel ", kernel_, ": the workspace of ", op, " must fit into what was planned; it needs ", bytes_text(std::size_t{bytes}),
                             ", planned were ", bytes_text(allowed), "; raise npu_operator_settings::workspace_floor");
  }

  const npu_operator_rules* rules_;
  const npu_operators* operators_ = nullptr;
  void* queue_ = nullptr;
  std::string_view kernel_{};
  bool is_counting_ = true;
  std::uintptr_t first_ = 0, top_ = 0, end_ = 0;
  std::size_t peak_ = 0, launches_ = 0;
  std::vector<std::string_view> missing_{};
};

}  // namespace xtrain
