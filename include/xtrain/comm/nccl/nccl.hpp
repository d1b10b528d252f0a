// NCCL as the collectives of a run on NVIDIA GPUs: with_nccl(network, context) is a strategy's transport.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <xtrain/comm/native_collectives.hpp>
#include <xtrain/comm/nccl/communicator.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// Collectives of device memory by NCCL.
class nccl_collectives final : public native_collectives {
 public:
  /// All members construct it at the same point.
  ///   throws  comm_error, config_error
  nccl_collectives(const cuda_context& device, std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t channel,
                   const nccl_options& options)
      : sums_(options.sums), ranks_(device, std::move(network), std::move(members), channel, options) {}

  [[nodiscard]] const std::type_info& stream_type() const override { return typeid(cuda_stream); }

  void all_reduce(void* stream, const device_array& values, reduction op) override {
    if (values.elements == 0) return;
    if (sums_in_fp32(values, op))
      return typed_16(values, [&](auto span) { all_reduce_in_fp32(of(stream), span); });
    queue(stream, {"ncclAllReduce", values.dtype, values.elements}, [=, type = type_of(values).code](auto& nccl, nccl_handle comm, cuda_queue_handle on) {
      return nccl.all_reduce(values.data, values.data, values.elements, type, operation(op), comm, on);
    });
  }
  void all_gather(void* stream, const void* part, const device_array& whole) override {
    if (whole.elements == 0) return;
    queue(stream, {"ncclAllGather", whole.dtype, whole.elements},
          [=, type = type_of(whole).code, n = whole.elements / ranks_.size()](auto& nccl, nccl_handle comm, cuda_queue_handle on) {
            return nccl.all_gather(part, whole.data, n, type, comm, on);
          });
  }
  void reduce_scatter(void* stream, const device_array& whole, void* part, reduction op) override {
    if (whole.elements == 0) return;
    if (sums_in_fp32(whole, op))
      return typed_16(whole, [&]<class T>(device_span<T, cuda_memory> span) { reduce_scatter_in_fp32(of(stream), span, static_cast<T*>(part)); });
    queue(stream, {"ncclReduceScatter", whole.dtype, whole.elements},
          [=, type = type_of(whole).code, n = whole.elements / ranks_.size()](auto& nccl, nccl_handle comm, cuda_queue_handle on) {
            return nccl.reduce_scatter(whole.data, part, n, type, operation(op), comm, on);
          });
  }
  void broadcast(void* stream, const device_array& values, std::size_t root) override {
    if (values.elements == 0) return;
    queue(stream, {"ncclBroadcast", values.dtype, values.elements},
          [=, type = type_of(values).code](auto& nccl, nccl_handle comm, cuda_queue_handle on) {
            return nccl.broadcast(values.data, values.data, values.elements, type, static_cast<int>(root), comm, on);
          });
  }
  void send(void* stream, const device_array& values, std::size_t to) override {
    if (values.elements == 0) return;
    queue(stream, {"ncclSend", values.dtype, values.elements}, [=, type = type_of(values).code](auto& nccl, nccl_handle comm, cuda_queue_handle on) {
      return nccl.send(values.data, values.elements, type, static_cast<int>(to), comm, on);
    });
  }
  void receive(void* stream, const device_array& values, std::size_t from) override {
    if (values.elements == 0) return;
    queue(stream, {"ncclRecv", values.dtype, values.elements}, [=, type = type_of(values).code](auto& nccl, nccl_handle comm, cuda_queue_handle on) {
      return nccl.receive(values.data, values.elements, type, static_cast<int>(from), comm, on);
    });
  }
  /// Calls are stored, and made at the group's end: NCCL's group is never left open.
  void group_start() override {
    require<comm_error>(!grouped_, "nccl: groups of calls must not be nested");
    grouped_.emplace();
  }
  void group_end() override {
    require<comm_error>(grouped_.has_value(), "nccl: a group of calls must begin before it ends");
    const std::vector<grouped_call> calls = std::move(*grouped_);
    grouped_.reset();
    if (calls.empty()) return;
    std::size_t elements = 0;
    for (const grouped_call& one : calls) elements += one.what.elements;
    const bool is_one = calls.size() == 1;
    ranks_.queue(*calls[0].stream, {is_one ? calls[0].what.what : "a group of calls", calls[0].what.dtype, elements},
                 [&](nccl_handle comm, cuda_queue_handle on) {
                   const nccl_library& nccl = ranks_.library();
                   int status = nccl.group_start();
                   if (status != nccl_status::success) return status;
                   for (const grouped_call& one : calls)
                     if (status = one.make(nccl, comm, on); status != nccl_status::success && status != nccl_status::in_progress) break;
                   const int ended = nccl.group_end();
                   return status != nccl_status::success && status != nccl_status::in_progress ? status : ended;
                 });
  }

 private:
  struct type {
    int code = 0;
    std::size_t bytes = 0;
  };
  struct grouped_call {
    cuda_stream* stream = nullptr;
    detail::nccl_call what{};
    std::function<int(const nccl_library&, nccl_handle, cuda_queue_handle)> make{};
  };
  static constexpr std::size_t least_scratch_bytes = std::size_t{64} << 10, most_scratch_bytes = std::size_t{64} << 20;

  [[nodiscard]] static cuda_stream& of(void* stream) { return *static_cast<cuda_stream*>(stream); }
  [[nodiscard]] static int operation(reduction op) { return op == reduction::sum ? nccl_operation::sum : nccl_operation::largest; }
  [[nodiscard]] static type type_of(const device_array& values) {
    if (values.dtype == dtype_traits<float>::name) return {nccl_type::fp32, 4};
    if (values.dtype == dtype_traits<double>::name) return {nccl_type::fp64, 8};
    if (values.dtype == dtype_traits<bf16>::name) return {nccl_type::bf16, 2};
    if (values.dtype == dtype_traits<fp16>::name) return {nccl_type::fp16, 2};
    if (values.dtype == dtype_traits<std::int32_t>::name) return {nccl_type::int32, 4};
    fail<comm_error>("nccl: elements must be of fp32, fp64, bf16, fp16 or int32; given ", values.dtype);
  }
  template <class Call>
  void queue(void* stream, const detail::nccl_call& what, Call call) {
    if (grouped_) {
      require<comm_error>(grouped_->empty() || grouped_->front().stream == &of(stream), "nccl: calls of a group must be queued on one stream");
      return grouped_->push_back({&of(stream), what, std::move(call)});
    }
    ranks_.queue(of(stream), what, [&](nccl_handle comm, cuda_queue_handle on) { return call(ranks_.library(), comm, on); });
  }

  // ---- sums of 16-bit values: each rank gets one part from every rank, and adds them in fp32, in rank order ----

  [[nodiscard]] bool sums_in_fp32(const device_array& values, reduction op) const {
    return sums_ == sums_of_16_bits::in_fp32 && op == reduction::sum && !grouped_ && type_of(values).bytes == 2;
  }
  template <class F>
  static void typed_16(const device_array& values, F&& f) {
    if (values.dtype == dtype_traits<bf16>::name) f(span_of<bf16, cuda_memory>(static_cast<bf16*>(values.data), values.elements));
    else f(span_of<fp16, cuda_memory>(static_cast<fp16*>(values.data), values.elements));
  }
  /// One stream after another uses the memory below.
  void end_use(cuda_stream& stream) {
    last_use_ = stream.record();
    last_user_ = stream.raw();
  }
  /// Queued work may use the memory: it is replaced only after that is done. A large initial size makes this rare.
  void grow(cuda_stream& stream, std::optional<buffer<cuda>>& memory, std::size_t bytes) {
    if (memory && memory->template as<std::byte>().size() >= bytes) return;
    if (memory) stream.synchronize();
    memory.reset();
    memory.emplace(ranks_.device(), std::max(bytes, least_scratch_bytes), memory_role::other);
  }
  template <class T>
  [[nodiscard]] device_span<T, cuda_memory> scratch(cuda_stream& stream, std::size_t elements) {
    if (last_use_ && last_user_ != stream.raw()) stream.wait(*last_use_);
    grow(stream, scratch_, elements * sizeof(T));
    return scratch_->template as<T>().subspan(0, elements);
  }
  /// `mine`, `part` elements, becomes the sum of all ranks' parts, at whole + rank · stride.
  template <class T>
  void add_parts(cuda_stream& stream, T* whole, std::size_t stride, T* mine, std::size_t part) {
    const std::size_t size = ranks_.size(), most = std::max<std::size_t>(1, most_scratch_bytes / sizeof(T) / size);
    for (std::size_t first = 0; first < part; first += most) {
      const std::size_t n = std::min(most, part - first);
      const auto received = scratch<T>(stream, std::min(most, part) * size).subspan(0, n * size);
      std::vector<device_message> messages;
      for (std::size_t rank = 0; rank < size; ++rank) {
        messages.push_back({rank, {received.raw() + rank * n, n, dtype_traits<T>::name}, false});
        messages.push_back({rank, {whole + rank * stride + first, n, dtype_traits<T>::name}, true});
      }
      exchange(&stream, messages);
      sum_rows<T>(stream, received, span_of<T, cuda_memory>(mine + first, n));
    }
  }
  template <class T>
  void sum_rows(cuda_stream& stream, device_span<T, cuda_memory> rows, device_span<T, cuda_memory> sum) {
    fill_zero(stream, sum);
    const kernel::column_sum<cuda_memory, T, T> add{
        .n = ranks_.size(), .c = sum.size(), .stride = sum.size(), .x_nc = device_span<const T, cuda_memory>(rows), .sum_c = sum};
    const std::size_t bytes = scratch_bytes(stream.properties(), add);
    if (bytes != 0) grow(stream, for_sums_, bytes);
    run_kernel(stream, add, for_sums_ ? scratch_span<cuda_memory>(for_sums_->template as<std::byte>()) : scratch_span<cuda_memory>());
    end_use(stream);
  }
  template <class T>
  void reduce_scatter_in_fp32(cuda_stream& stream, device_span<T, cuda_memory> whole, T* mine) {
    const std::size_t part = whole.size() / ranks_.size();
    add_parts(stream, whole.raw(), part, mine, part);
  }
  template <class T>
  void all_reduce_in_fp32(cuda_stream& stream, device_span<T, cuda_memory> values) {
    const std::size_t size = ranks_.size(), part = values.size() / size, rest = values.size() % size;
    if (part != 0) {
      T* const mine = values.raw() + ranks_.rank() * part;
      add_parts(stream, values.raw(), part, mine, part);
      all_gather(&stream, mine, {values.raw(), part * size, dtype_traits<T>::name});
    }
    if (rest == 0) return;
    const auto last = values.subspan(part * size, rest), all = scratch<T>(stream, rest * size).subspan(0, rest * size);
    all_gather(&stream, last.raw(), {all.raw(), rest * size, dtype_traits<T>::name});
    sum_rows<T>(stream, all, last);
  }

  sums_of_16_bits sums_;
  std::optional<std::vector<grouped_call>> grouped_{};
  std::optional<buffer<cuda>> scratch_{}, for_sums_{};
  std::optional<cuda_stream::event> last_use_{};
  cuda_queue_handle last_user_ = nullptr;
  detail::nccl_communicator ranks_;  // last: its queued work is done before the memory is released
};

/// Host messages use another transport; collectives of device memory use NCCL.
class nccl_transport final : public transport {
 public:
  nccl_transport(std::shared_ptr<transport> network, cuda_context device, const nccl_options& options)
      : network_(std::move(network)), device_(std::move(device)), options_(options) {}

  [[nodiscard]] std::string_view name() const override { return network_->name(); }
  [[nodiscard]] std::size_t rank() const override { return network_->rank(); }
  [[nodiscard]] std::size_t size() const override { return network_->size(); }
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    return network_->send(to, channel, bytes);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    return network_->receive(from, channel, bytes);
  }
  [[nodiscard]] std::unique_ptr<native_collectives> native(std::span<const std::size_t> members, std::uint32_t channel) override {
    if (members.size() < 2) return nullptr;
    return std::make_unique<nccl_collectives>(device_, network_, std::vector<std::size_t>(members.begin(), members.end()), first_channel + channel, options_);
  }
  [[nodiscard]] channel_origin channels() const override { return network_->channels(); }
  [[nodiscard]] std::string stopped() const override { return network_->stopped(); }
  [[nodiscard]] bool carries() const override { return network_->carries(); }

 private:
  static constexpr std::uint32_t first_channel = std::uint32_t{1} << 20;  // unused by groups

  std::shared_ptr<transport> network_;
  cuda_context device_;
  nccl_options options_;
};

/// The same ranks, with NCCL's collectives. device: this rank's GPU, used by the model too; each rank has a different GPU.
///   throws  config_error with a sentence when NCCL is not installed or too old
[[nodiscard]] inline std::shared_ptr<transport> with_nccl(std::shared_ptr<transport> network, const cuda_context& device, const nccl_options& options = {}) {
  nccl_options with = options;
  if (with.library == nullptr && !device.is_dry_run()) with.library = &nccl_here();
  return std::make_shared<nccl_transport>(std::move(network), device, with);
}

}  // namespace xtrain
