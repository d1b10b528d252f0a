// HCCL as the collectives of a run on Ascend NPUs: with_hccl(network, context) is the transport that a strategy is given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <xtrain/comm/hccl/communicator.hpp>
#include <xtrain/comm/native_collectives.hpp>
#include <xtrain/comm/point_to_point.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/npu/npu.hpp>
#include <xtrain/device/pinned_memory.hpp>

namespace xtrain {

/// Collectives of device memory by HCCL. It has no sums of fp64: these are of values that all ranks gather, in rank order, by the host.
class hccl_collectives final : public native_collectives {
 public:
  hccl_collectives(std::shared_ptr<detail::hccl_communicator> ranks, hccl_sums_of_16_bits sums) : ranks_(std::move(ranks)), sums_(sums) {}
  ~hccl_collectives() override {
    if (!last_use_) return;
    try {
      last_use_->synchronize();  // of the memory below
    } catch (...) {  // who waits for the result is told
    }
  }
  hccl_collectives(const hccl_collectives&) = delete;
  hccl_collectives& operator=(const hccl_collectives&) = delete;

  [[nodiscard]] const std::type_info& stream_type() const override { return typeid(npu_stream); }

  void all_reduce(void* stream, const device_array& values, reduction op) override {
    if (values.elements == 0) return;
    if (sums_in_fp32(values, op)) return typed_16(values, [&](auto span) { all_reduce_in_fp32(of(stream), span); });
    if (type_of(values).code == hccl_type::fp64) {
      const auto span = span_of<double, npu_memory>(static_cast<double*>(values.data), values.elements);
      return reduce_fp64(of(stream), span, span, op);
    }
    queue(stream, {"HcclAllReduce", values.dtype, values.elements}, [=, type = type_of(values).code](auto& hccl, void* comm, void* on) {
      return hccl.all_reduce(values.data, values.data, values.elements, type, operation(op), comm, on);
    });
  }
  void all_gather(void* stream, const void* part, const device_array& whole) override {
    if (whole.elements == 0) return;
    queue(stream, {"HcclAllGather", whole.dtype, whole.elements},
          [=, type = type_of(whole).code, n = whole.elements / ranks_->size()](auto& hccl, void* comm, void* on) {
            return hccl.all_gather(const_cast<void*>(part), whole.data, n, type, comm, on);
          });
  }
  void reduce_scatter(void* stream, const device_array& whole, void* part, reduction op) override {
    if (whole.elements == 0) return;
    if (sums_in_fp32(whole, op))
      return typed_16(whole, [&]<class T>(device_span<T, npu_memory> span) {
        add_parts(of(stream), span.raw(), span.size() / ranks_->size(), static_cast<T*>(part), span.size() / ranks_->size());
      });
    if (type_of(whole).code == hccl_type::fp64)
      return reduce_fp64(of(stream), span_of<double, npu_memory>(static_cast<double*>(whole.data), whole.elements),
                         span_of<double, npu_memory>(static_cast<double*>(part), whole.elements / ranks_->size()), op);
    queue(stream, {"HcclReduceScatter", whole.dtype, whole.elements},
          [=, type = type_of(whole).code, n = whole.elements / ranks_->size()](auto& hccl, void* comm, void* on) {
            return hccl.reduce_scatter(whole.data, part, n, type, operation(op), comm, on);
          });
  }
  void broadcast(void* stream, const device_array& values, std::size_t root) override {
    if (values.elements == 0) return;
    queue(stream, {"HcclBroadcast", values.dtype, values.elements}, [=, type = type_of(values).code](auto& hccl, void* comm, void* on) {
      return hccl.broadcast(values.data, values.elements, type, static_cast<std::uint32_t>(root), comm, on);
    });
  }
  void send(void* stream, const device_array& values, std::size_t to) override {
    if (values.elements == 0) return;
    if (grouped_) return messages_.push_back({to, values, true}), note_group(stream);
    queue(stream, {"HcclSend", values.dtype, values.elements}, [=, type = type_of(values).code](auto& hccl, void* comm, void* on) {
      return hccl.send(values.data, values.elements, type, static_cast<std::uint32_t>(to), comm, on);
    });
  }
  void receive(void* stream, const device_array& values, std::size_t from) override {
    if (values.elements == 0) return;
    if (grouped_) return messages_.push_back({from, values, false}), note_group(stream);
    queue(stream, {"HcclRecv", values.dtype, values.elements}, [=, type = type_of(values).code](auto& hccl, void* comm, void* on) {
      return hccl.receive(values.data, values.elements, type, static_cast<std::uint32_t>(from), comm, on);
    });
  }
  /// Messages are kept, and sent as batches at the group's end.
  void group_start() override {
    require<comm_error>(!grouped_, "hccl: groups of calls must not be nested");
    grouped_ = true;
    grouped_on_ = nullptr;
  }
  void group_end() override {
    require<comm_error>(grouped_, "hccl: a group of calls must begin before it ends");
    grouped_ = false;
    const std::vector<device_message> messages = std::exchange(messages_, {});
    if (!messages.empty()) exchange(grouped_on_, messages);
  }
  /// A message to the rank itself is a copy. A batch has at most one message to a rank and one from it: later ones are in later batches.
  void exchange(void* stream, std::span<const device_message> messages) override {
    const std::size_t me = ranks_->rank(), size = ranks_->size();
    std::deque<device_array> own;
    std::vector<std::size_t> sent(size), received(size);
    std::vector<std::vector<hccl_message>> batches;
    for (const device_message& one : messages) {
      if (one.values.elements == 0) continue;
      if (one.rank == me) {
        if (one.is_sent) own.push_back(one.values);
        continue;
      }
      const std::size_t number = (one.is_sent ? sent : received)[one.rank]++;
      if (number >= batches.size()) batches.resize(number + 1);
      batches[number].push_back({one.is_sent ? 0 : 1, one.values.data, one.values.elements, type_of(one.values).code, static_cast<std::uint32_t>(one.rank)});
    }
    for (const device_message& one : messages) {
      if (one.values.elements == 0 || one.rank != me || one.is_sent) continue;
      require<comm_error>(!own.empty() && own.front().elements == one.values.elements,
                          "hccl: a rank must send to itself what it receives from itself; rank ", me, " receives ", one.values.elements, " elements");
      of(stream).copy_within(one.values.data, own.front().data, one.values.elements * type_of(one.values).bytes);
      own.pop_front();
    }
    for (std::vector<hccl_message>& batch : batches) {
      std::size_t elements = 0;
      for (const hccl_message& one : batch) elements += one.elements;
      queue(stream, {"HcclBatchSendRecv", messages.front().values.dtype, elements}, [&](auto& hccl, void* comm, void* on) {
        return hccl.batch(batch.data(), static_cast<std::uint32_t>(batch.size()), comm, on);
      });
    }
  }
  void all_to_all(void* stream, const device_array& from, const device_array& to, std::size_t ranks, std::size_t) override {
    if (from.elements == 0) return;
    queue(stream, {"HcclAlltoAll", from.dtype, from.elements}, [=, type = type_of(from).code](auto& hccl, void* comm, void* on) {
      return hccl.all_to_all(from.data, from.elements / ranks, type, to.data, to.elements / ranks, type, comm, on);
    });
  }

 private:
  struct type {
    std::int32_t code = 0;
    std::size_t bytes = 0;
  };
  static constexpr std::size_t least_scratch_bytes = std::size_t{64} << 10, most_scratch_bytes = std::size_t{64} << 20;

  [[nodiscard]] static npu_stream& of(void* stream) { return *static_cast<npu_stream*>(stream); }
  [[nodiscard]] static std::int32_t operation(reduction op) { return op == reduction::sum ? hccl_operation::sum : hccl_operation::largest; }
  [[nodiscard]] static type type_of(const device_array& values) {
    if (values.dtype == dtype_traits<float>::name) return {hccl_type::fp32, 4};
    if (values.dtype == dtype_traits<double>::name) return {hccl_type::fp64, 8};
    if (values.dtype == dtype_traits<bf16>::name) return {hccl_type::bf16, 2};
    if (values.dtype == dtype_traits<fp16>::name) return {hccl_type::fp16, 2};
    if (values.dtype == dtype_traits<std::int32_t>::name) return {hccl_type::int32, 4};
    fail<comm_error>("hccl: elements must be of fp32, fp64, bf16, fp16 or int32; given ", values.dtype);
  }
  void note_group(void* stream) {
    require<comm_error>(grouped_on_ == nullptr || grouped_on_ == stream, "hccl: calls of a group must be queued on one stream");
    grouped_on_ = stream;
  }
  template <class Call>
  void queue(void* stream, const detail::hccl_call& what, Call call) {
    ranks_->queue(of(stream), what, [&](void* comm, void* on) { return call(ranks_->library(), comm, on); });
  }

  // ---- sums of 16-bit values: each rank gets one part from every rank, and adds them in fp32 ----

  [[nodiscard]] bool sums_in_fp32(const device_array& values, reduction op) const {
    return sums_ == hccl_sums_of_16_bits::in_fp32 && op == reduction::sum && type_of(values).bytes == 2;
  }
  template <class F>
  static void typed_16(const device_array& values, F&& f) {
    if (values.dtype == dtype_traits<bf16>::name) f(span_of<bf16, npu_memory>(static_cast<bf16*>(values.data), values.elements));
    else f(span_of<fp16, npu_memory>(static_cast<fp16*>(values.data), values.elements));
  }
  /// The memory below is of one stream after the other.
  void take_memory(npu_stream& stream) {
    if (last_use_ && last_user_ != stream.queue()) stream.wait(*last_use_);
  }
  void end_use(npu_stream& stream) {
    last_use_ = stream.record();
    last_user_ = stream.queue();
  }
  /// What is queued may use the memory: it is replaced by more only after that is done. It starts large enough that this is rare.
  void grow(npu_stream& stream, std::optional<buffer<npu>>& memory, std::size_t bytes) {
    if (memory && memory->template as<std::byte>().size() >= bytes) return;
    if (memory) stream.synchronize();
    memory.reset();
    memory.emplace(ranks_->device(), std::max(bytes, least_scratch_bytes), memory_role::other);
  }
  template <class T>
  [[nodiscard]] device_span<T, npu_memory> scratch(npu_stream& stream, std::size_t elements) {
    take_memory(stream);
    grow(stream, scratch_, elements * sizeof(T));
    return scratch_->template as<T>().subspan(0, elements);
  }
  /// `mine`, `part` elements, becomes the sum of the parts of all ranks, which are at whole + rank · stride.
  template <class T>
  void add_parts(npu_stream& stream, T* whole, std::size_t stride, T* mine, std::size_t part) {
    const std::size_t size = ranks_->size(), most = std::max<std::size_t>(1, most_scratch_bytes / sizeof(T) / size);
    for (std::size_t first = 0; first < part; first += most) {
      const std::size_t n = std::min(most, part - first);
      const auto received = scratch<T>(stream, std::min(most, part) * size).subspan(0, n * size);
      std::vector<device_message> messages;
      for (std::size_t rank = 0; rank < size; ++rank) {
        messages.push_back({rank, {received.raw() + rank * n, n, dtype_traits<T>::name}, false});
        messages.push_back({rank, {whole + rank * stride + first, n, dtype_traits<T>::name}, true});
      }
      exchange(&stream, messages);
      sum_rows<T>(stream, received, span_of<T, npu_memory>(mine + first, n));
    }
  }
  template <class T>
  void sum_rows(npu_stream& stream, device_span<T, npu_memory> rows, device_span<T, npu_memory> sum) {
    fill_zero(stream, sum);
    const kernel::column_sum<npu_memory, T, T> add{
        .n = ranks_->size(), .c = sum.size(), .stride = sum.size(), .x_nc = device_span<const T, npu_memory>(rows), .sum_c = sum};
    const std::size_t bytes = scratch_bytes(stream.properties(), add);
    if (bytes != 0) grow(stream, for_sums_, bytes);
    run_kernel(stream, add, for_sums_ ? scratch_span<npu_memory>(for_sums_->template as<std::byte>()) : scratch_span<npu_memory>());
    end_use(stream);
  }
  template <class T>
  void all_reduce_in_fp32(npu_stream& stream, device_span<T, npu_memory> values) {
    const std::size_t size = ranks_->size(), part = values.size() / size, rest = values.size() % size;
    if (part != 0) {
      T* const mine = values.raw() + ranks_->rank() * part;
      add_parts(stream, values.raw(), part, mine, part);
      all_gather(&stream, mine, {values.raw(), part * size, dtype_traits<T>::name});
    }
    if (rest == 0) return;
    const auto last = values.subspan(part * size, rest), all = scratch<T>(stream, rest * size).subspan(0, rest * size);
    all_gather(&stream, last.raw(), {all.raw(), rest * size, dtype_traits<T>::name});
    sum_rows<T>(stream, all, last);
  }

  // ---- fp64: few numbers, such as the norm of gradients and the loss ----

  /// part: all values, or this rank's part of them
  void reduce_fp64(npu_stream& stream, device_span<double, npu_memory> values, device_span<double, npu_memory> part, reduction op) {
    const std::size_t n = values.size(), size = ranks_->size(), first = part.size() == n ? 0 : ranks_->rank() * part.size();
    const auto all = scratch<double>(stream, n * size);
    all_gather(&stream, values.raw(), {all.raw(), n * size, dtype_traits<double>::name});
    if (!on_host_ || on_host_->bytes() < n * size * sizeof(double)) {
      if (on_host_) stream.synchronize();
      on_host_.emplace(ranks_->device(), std::max<std::size_t>(n * size * sizeof(double), 4096));
    }
    const std::span<double> host = on_host_->as<double>();
    copy_to_host(stream, host.subspan(0, n * size), all);
    stream.queue_host_function([host, n, size, op] {
      for (std::size_t r = 1; r < size; ++r)
        for (std::size_t i = 0; i < n; ++i) {
          const double other = host[r * n + i];
          if (op == reduction::sum) host[i] += other;
          else if (other > host[i] || other != other) host[i] = other;
        }
    });
    copy_to_device(stream, part, std::span<const double>(host.subspan(first, part.size())));
    end_use(stream);
  }

  std::shared_ptr<detail::hccl_communicator> ranks_;
  hccl_sums_of_16_bits sums_;
  bool grouped_ = false;
  void* grouped_on_ = nullptr;
  std::vector<device_message> messages_{};
  std::optional<buffer<npu>> scratch_{}, for_sums_{};
  std::optional<pinned_memory<npu>> on_host_{};
  std::optional<npu_stream::event> last_use_{};
  void* last_user_ = nullptr;
};

/// The messages of the host go through another transport; collectives of device memory through HCCL. Groups of the same ranks share a communicator, which
/// has much memory of the NPU, and lives as long as the transport. Messages of pairs have communicators of their own: they must not wait for a group's calls.
class hccl_transport final : public transport {
 public:
  hccl_transport(std::shared_ptr<transport> network, npu_context device, const hccl_options& options)
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
    const std::lock_guard lock(mutex_);
    const std::pair key(std::vector<std::size_t>(members.begin(), members.end()), channel >= detail::point_to_point::pair_channels);
    std::shared_ptr<detail::hccl_communicator>& shared = communicators_[key];
    if (!shared) {
      try {
        shared = std::make_shared<detail::hccl_communicator>(device_, network_, key.first, first_channel + channel, options_,
                                                             detail::hccl_communicator_bytes());
      } catch (...) {
        communicators_.erase(key);
        throw;
      }
    }
    return std::make_unique<hccl_collectives>(shared, options_.sums);
  }
  [[nodiscard]] std::string stopped() const override { return network_->stopped(); }
  [[nodiscard]] channel_origin channels() const override { return network_->channels(); }
  [[nodiscard]] bool carries() const override { return network_->carries(); }
  [[nodiscard]] std::size_t communicators() const {
    const std::lock_guard lock(mutex_);
    return communicators_.size();
  }

 private:
  static constexpr std::uint32_t first_channel = std::uint32_t{1} << 20;  // where groups send nothing

  std::shared_ptr<transport> network_;
  npu_context device_;
  hccl_options options_;
  mutable std::mutex mutex_{};
  // by members, and whether it is for messages of a pair
  std::map<std::pair<std::vector<std::size_t>, bool>, std::shared_ptr<detail::hccl_communicator>> communicators_{};
};

/// The same ranks, with HCCL's collectives. device: this rank's NPU, on which the model is opened too; each rank has one of its own.
///   throws  config_error with a sentence when HCCL is not installed
[[nodiscard]] inline std::shared_ptr<transport> with_hccl(std::shared_ptr<transport> network, const npu_context& device, const hccl_options& options = {}) {
  hccl_options with = options;
  if (!device.is_dry_run()) {
    if (with.library == nullptr) with.library = device.state()->hccl() != nullptr ? device.state()->hccl() : &hccl_here();
    const npu_properties has = device.properties();  // HCCL reads it when the first communicator is made
    if (has.is_deterministic && has.generation != npu_generation::first) (void)::setenv("HCCL_DETERMINISTIC", "true", 0);
  }
  return std::make_shared<hccl_transport>(std::move(network), device, with);
}

}  // namespace xtrain
