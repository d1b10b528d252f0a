// Both phases of the fake's operators, and the functions of its table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/attention.hpp>
#include <xtrain/testing/fake_ascend_operators/call.hpp>
#include <xtrain/testing/fake_ascend_operators/conversions.hpp>
#include <xtrain/testing/fake_ascend_operators/elementwise.hpp>
#include <xtrain/testing/fake_ascend_operators/experts.hpp>
#include <xtrain/testing/fake_ascend_operators/fused.hpp>
#include <xtrain/testing/fake_ascend_operators/products.hpp>
#include <xtrain/testing/fake_ascend_operators/reductions.hpp>
#include <xtrain/testing/fake_ascend_operators/tables.hpp>

namespace xtrain::testing {

/// A function per operator, with its name in the table.
struct fake_ascend_operators::operations : detail::fake_products,
                                            detail::fake_reductions,
                                            detail::fake_elementwise,
                                            detail::fake_conversions,
                                            detail::fake_tables,
                                            detail::fake_experts,
                                            detail::fake_fused,
                                            detail::fake_attention {};

inline int fake_ascend_operators::first_phase(std::size_t index, const std::function<void(call&)>& check, std::uint64_t* bytes, aclOpExecutor** out) {
  const std::lock_guard lock(mutex_);
  const std::string name(npu_op::names[index]);
  if (bytes == nullptr || out == nullptr) return say(npu_operator_status::null_argument, concat(name, ": workspaceSize or executor is null"));
  if (failing_call_ != 0 && --failing_call_ == 0) return say(failing_status_, concat(name, ": injected"));
  auto making = std::make_unique<executor>();
  making->index = index;
  making->name = name;
  try {
    call one(*this, *making);
    check(one);
  } catch (const detail::fake_refusal& refusal) {
    return say(refusal.status, refusal.why);
  }
  ++calls_;
  // any size that is a multiple of 32, sometimes none
  making->workspace = calls_ % 3 == 0 ? 0 : calls_ * 2654435761U % settings_.most_workspace / 32 * 32;
  *bytes = making->workspace;
  executor* const made = making.get();
  executors_[made] = std::move(making);
  *out = reinterpret_cast<aclOpExecutor*>(made);
  return npu_operator_status::success;
}

inline int fake_ascend_operators::second_phase(std::size_t index, void* workspace, std::uint64_t bytes, aclOpExecutor* of, void* stream) {
  std::unique_lock lock(mutex_);
  const std::string name(npu_op::names[index]);
  if (of == nullptr) return say(npu_operator_status::null_executor, concat(name, ": the executor is null"));
  const auto found = executors_.find(of);
  const auto violate_and_fail = [&](const std::string& what) {
    violate(concat(name, ": ", what));
    return say(npu_operator_status::internal, concat(name, ": ", what));
  };
  if (found == executors_.end()) return violate_and_fail("an executor ran twice, or was destroyed");
  executor& run = *found->second;
  if (run.index != index) return violate_and_fail(concat("the executor is of ", run.name));
  if (run.runs++ > 0 && run.copies) return violate_and_fail("an operator that copies ran twice");
  if (bytes < run.workspace) return violate_and_fail(concat("the workspace must have ", run.workspace, " bytes; given ", bytes));
  if (run.workspace != 0 && workspace == nullptr) return violate_and_fail("the workspace is null");
  if (reinterpret_cast<std::uintptr_t>(workspace) % 32 != 0) return violate_and_fail("the workspace is not aligned");
  const auto* const first = static_cast<const std::byte*>(workspace);
  std::vector<std::pair<const void*, std::size_t>> ranges;
  for (std::size_t i = 0; i < run.operands.size(); ++i) {
    const tensor& operand = run.operands[i];
    const auto live = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& one) { return one.second.get() == run.handles[i]; });
    if (live == tensors_.end()) return violate_and_fail("a tensor was destroyed between the phases");
    if (operand.elements() == 0) continue;
    if (operand.data == nullptr) return violate_and_fail("a tensor has no address");
    const std::byte *const begin = operand.first(), *const end = begin + operand.extent() * operand.size();
    if (run.workspace != 0 && begin < first + run.workspace && first < end) return violate_and_fail("the workspace shares memory with an operand");
    ranges.emplace_back(begin, static_cast<std::size_t>(end - begin));
  }
  if (run.workspace != 0) ranges.emplace_back(workspace, run.workspace);
  ++launches_;
  ++launches_by_name_[name];
  const std::uint64_t size = run.workspace;
  std::function<void()> compute = [poisoned = workspace, size, f = run.compute] {
    if (size != 0) std::memset(poisoned, 0xCB, size);
    f();
    if (size != 0) std::memset(poisoned, 0xCB, size);
  };
  if (!run.is_repeatable) executors_.erase(found);
  lock.unlock();
  if (enqueue) return enqueue(stream, {name, std::move(ranges), std::move(compute)});
  try {
    compute();
  } catch (const detail::fake_refusal& refusal) {
    return say(refusal.status, refusal.why);
  }
  return npu_operator_status::success;
}

/// Functions that make and destroy arguments.
struct fake_ascend_objects {
  static fake_ascend_operators& fake() { return *fake_ascend_operators::self(); }
  static aclTensor* create_tensor(const std::int64_t* dims, std::uint64_t rank, int type, const std::int64_t* strides, std::int64_t offset, int format,
                                  const std::int64_t* storage, std::uint64_t storage_rank, void* data) {
    const std::lock_guard lock(fake().mutex_);
    auto made = std::make_unique<detail::fake_tensor>();
    made->type = static_cast<npu_type>(type);
    made->dims.assign(dims, dims + rank);
    std::int64_t stride = 1;
    made->strides.assign(rank, 1);
    for (std::size_t i = rank; i-- > 0; stride *= made->dims[i]) made->strides[i] = stride;
    if (strides != nullptr) made->strides.assign(strides, strides + rank);
    made->offset = offset;
    made->storage = 1;
    for (std::uint64_t i = 0; i < storage_rank; ++i) made->storage *= storage[i];
    made->data = static_cast<std::byte*>(data);
    const auto refuse = [&](const std::string& why) {
      fake().message_ = concat("aclCreateTensor: ", why, ": ", made->text());
      return nullptr;
    };
    if (name_of(made->type) == "an unknown type") return refuse("unknown type");
    if (format != 2) return refuse("the format must be ND");
    if (rank > npu_max_rank) return refuse("more than 8 dims");
    if (offset < 0) return refuse("a negative offset");
    for (std::size_t i = 0; i < rank; ++i)
      if (made->strides[i] < 0 || made->dims[i] < 0) return refuse("a negative dim or stride");
    if (made->elements() != 0 && static_cast<std::int64_t>(made->extent()) + offset > made->storage) return refuse("the view is outside its storage");
    if (reinterpret_cast<std::uintptr_t>(data) % npu_tensor_alignment != 0) return refuse("the address is not a multiple of 32");
    const void* const handle = made.get();
    fake().tensors_[handle] = std::move(made);
    return reinterpret_cast<aclTensor*>(const_cast<void*>(handle));
  }
  template <class All>
  static int destroy(All& all, const void* handle, const char* what) {
    const std::lock_guard lock(fake().mutex_);
    if (all.erase(handle) == 1) return 0;
    fake().violate(concat(what, " was destroyed twice, or never made"));
    return npu_operator_status::invalid_argument;
  }
  static int destroy_tensor(const aclTensor* handle) { return destroy(fake().tensors_, handle, "a tensor"); }
  static int destroy_scalar(const aclScalar* handle) { return destroy(fake().scalars_, handle, "a scalar"); }
  static int destroy_ints(const aclIntArray* handle) { return destroy(fake().ints_, handle, "a list of integers"); }
  static int destroy_bools(const aclBoolArray* handle) { return destroy(fake().bools_, handle, "a list of flags"); }
  template <class Object, class All, class Value>
  static Object* keep(All& all, Value value) {
    const std::lock_guard lock(fake().mutex_);
    auto made = std::make_unique<Value>(std::move(value));
    const void* const handle = made.get();
    all[handle] = std::move(made);
    return reinterpret_cast<Object*>(const_cast<void*>(handle));
  }
  static aclScalar* create_scalar(void* value, int type) {
    detail::fake_tensor one{.type = static_cast<npu_type>(type), .data = static_cast<std::byte*>(value)};
    return keep<aclScalar>(fake().scalars_, detail::fake_scalar{detail::load(one)[0], one.type});
  }
  static aclIntArray* create_ints(const std::int64_t* from, std::uint64_t count) {
    return keep<aclIntArray>(fake().ints_, detail::fake_ints(from, from + count));
  }
  static aclBoolArray* create_bools(const bool* from, std::uint64_t count) {
    return keep<aclBoolArray>(fake().bools_, std::vector<bool>(from, from + count));
  }
  static int set_repeatable(aclOpExecutor* of) {
    const std::lock_guard lock(fake().mutex_);
    const auto found = fake().executors_.find(of);
    if (found == fake().executors_.end()) return npu_operator_status::null_executor;
    found->second->is_repeatable = true;
    return 0;
  }
  static int destroy_executor(aclOpExecutor* of) {
    const std::lock_guard lock(fake().mutex_);
    const auto found = fake().executors_.find(of);
    if (found == fake().executors_.end() || !found->second->is_repeatable) {
      fake().violate("an executor was destroyed that is not repeatable");
      return npu_operator_status::null_executor;
    }
    fake().executors_.erase(found);
    return 0;
  }
  static const char* recent_error() {
    const std::lock_guard lock(fake().mutex_);
    fake().told_ = std::exchange(fake().message_, {});
    return fake().told_.empty() ? nullptr : fake().told_.c_str();
  }
};

namespace detail {

template <std::size_t Index, auto F>
struct fake_phases;
template <std::size_t Index, class... Argument, void (*F)(fake_ascend_operators::call&, Argument...)>
struct fake_phases<Index, F> {
  static int size(Argument... argument, std::uint64_t* bytes, aclOpExecutor** out) {
    return fake_ascend_operators::self()->first_phase(
        Index, [&](fake_ascend_operators::call& one) { F(one, argument...); }, bytes, out);
  }
  static int run(void* workspace, std::uint64_t bytes, aclOpExecutor* of, void* stream) {
    return fake_ascend_operators::self()->second_phase(Index, workspace, bytes, of, stream);
  }
  template <class Operator>
  static void put(npu_operators& table, const Operator&) {
    const typename Operator::size_function function = &size;  // the same arguments as in the table
    table.entries[Index] = {reinterpret_cast<void*>(function), &run, "fake"};
  }
};

}  // namespace detail

inline npu_operators fake_ascend_operators::make_table(const fake_ascend_operators_config& settings) {
  npu_operators table;
#define XTRAIN_FAKE_OPERATOR(id, name, ...) \
  detail::fake_phases<static_cast<std::size_t>(npu_op::place::id), &operations::id>::put(table, npu_op::id);
  XTRAIN_NPU_OPERATORS(XTRAIN_FAKE_OPERATOR)
#undef XTRAIN_FAKE_OPERATOR
  for (std::size_t i = 0; i < npu_op::count; ++i)
    if (std::find(settings.missing.begin(), settings.missing.end(), npu_op::names[i]) != settings.missing.end()) table.entries[i] = {};
  using all = fake_ascend_objects;
  table.objects = {&all::create_tensor, &all::destroy_tensor, &all::create_scalar, &all::destroy_scalar, &all::create_ints,     &all::destroy_ints,
                   &all::create_bools,  &all::destroy_bools,  &all::set_repeatable, &all::destroy_executor, &all::recent_error};
  return table;
}
inline fake_ascend_operators::fake_ascend_operators(fake_ascend_operators_config settings)
    : settings_(std::move(settings)), table_(make_table(settings_)) {
  self() = this;
}

}  // namespace xtrain::testing
