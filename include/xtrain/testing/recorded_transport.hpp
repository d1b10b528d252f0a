// A transport whose groups have native collectives in place of NCCL's: whole strategies run on it, and an error reports the call that differs between ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/native_collectives.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/testing/recorded_group.hpp>

namespace xtrain::testing {

/// The ledgers of all groups of a run, shared by its ranks.
class call_ledgers {
 public:
  [[nodiscard]] std::shared_ptr<call_ledger> of(std::span<const std::size_t> members, std::uint32_t channel) {
    const std::lock_guard lock(mutex_);
    auto& one = ledgers_[{std::vector<std::size_t>(members.begin(), members.end()), channel}];
    if (!one) one = std::make_shared<call_ledger>(members.size());
    return one;
  }
  [[nodiscard]] std::size_t calls() const {
    const std::lock_guard lock(mutex_);
    std::size_t all = 0;
    for (const auto& [key, ledger] : ledgers_) all += ledger->calls();
    return all;
  }
  /// Messages of the host, and their bytes; native collectives do not count.
  std::atomic<std::size_t> host_messages{0}, host_bytes{0};
  /// Messages of device memory that bypass the host.
  std::atomic<std::size_t> native_messages{0};
  /// throws comm_error when a rank has made fewer calls than the others
  void require_complete() const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, ledger] : ledgers_) ledger->require_complete();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::vector<std::size_t>, std::uint32_t>, std::shared_ptr<call_ledger>> ledgers_;
};

/// Records calls when they are queued, and makes them through a group on separate channels.
template <class Device>
class recorded_collectives : public native_collectives {
 public:
  using stream_of_device = typename Device::stream;
  using memory = typename Device::memory;

  recorded_collectives(std::shared_ptr<call_ledgers> ledgers, const std::shared_ptr<transport>& network, std::vector<std::size_t> members,
                       std::uint32_t channel)
      : ledgers_(std::move(ledgers)), inner_(ledgers_->of(members, channel), network, members, native_channels + channel) {}

  [[nodiscard]] const std::type_info& stream_type() const override { return typeid(stream_of_device); }
  void all_reduce(void* stream, const device_array& values, reduction op) override {
    typed(values, [&](auto span) { inner_.all_reduce(of(stream), span, op); });
  }
  void all_gather(void* stream, const void* part, const device_array& whole) override {
    typed(whole, [&]<class T>(device_span<T, memory> span) {
      inner_.all_gather(of(stream), span_of<const T, memory>(static_cast<const T*>(part), span.size() / inner_.size()), span);
    });
  }
  void reduce_scatter(void* stream, const device_array& whole, void* part, reduction op) override {
    typed(whole, [&]<class T>(device_span<T, memory> span) {
      inner_.reduce_scatter(of(stream), device_span<const T, memory>(span), span_of<T, memory>(static_cast<T*>(part), span.size() / inner_.size()), op);
    });
  }
  void broadcast(void* stream, const device_array& values, std::size_t root) override {
    typed(values, [&](auto span) { inner_.broadcast(of(stream), span, root); });
  }
  void send(void* stream, const device_array& values, std::size_t to) override {
    ++ledgers_->native_messages;
    typed(values, [&]<class T>(device_span<T, memory> span) { inner_.send(of(stream), to, device_span<const T, memory>(span)); });
    begun(stream);
  }
  void receive(void* stream, const device_array& values, std::size_t from) override {
    typed(values, [&](auto span) { inner_.receive(of(stream), from, span); });
    begun(stream);
  }
  void group_start() override {
    inner_.begin_group();
    last_ = nullptr;
  }
  void group_end() override {
    if (last_ == nullptr) return inner_.end_empty_group();
    inner_.end_group(of(last_));
    begun(last_);
  }

 protected:
  [[nodiscard]] static stream_of_device& of(void* stream) { return *static_cast<stream_of_device*>(stream); }
  template <class Call>
  static void typed(const device_array& array, Call&& call) {
    const auto try_one = [&]<class T>(T) {
      if (array.dtype != dtype_traits<T>::name) return false;
      call(span_of<T, memory>(static_cast<T*>(array.data), array.elements));
      return true;
    };
    require<comm_error>(try_one(float{}) || try_one(double{}) || try_one(bf16{}) || try_one(fp16{}) || try_one(std::int32_t{}),
                        "recorded_collectives: dtypes are fp32, fp64, bf16, fp16 and int32; given ", array.dtype);
  }

 private:
  /// Messages are sent although this rank does not wait for them.
  void begun(void* stream) {
    last_ = stream;
    if constexpr (requires { of(stream).begin(); }) of(stream).begin();
  }

  static constexpr std::uint32_t native_channels = std::uint32_t{1} << 24;  // unused by the host

  std::shared_ptr<call_ledgers> ledgers_;
  recorded_group inner_;
  void* last_ = nullptr;
};

/// Messages of the host use `network`.
template <class Device>
class recorded_transport : public transport {
 public:
  recorded_transport(std::shared_ptr<transport> network, std::shared_ptr<call_ledgers> ledgers)
      : network_(std::move(network)), ledgers_(std::move(ledgers)) {}

  [[nodiscard]] std::string_view name() const override { return network_->name(); }
  [[nodiscard]] std::size_t rank() const override { return network_->rank(); }
  [[nodiscard]] std::size_t size() const override { return network_->size(); }
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    ++ledgers_->host_messages;
    ledgers_->host_bytes += bytes.size();
    return network_->send(to, channel, bytes);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    return network_->receive(from, channel, bytes);
  }
  [[nodiscard]] std::unique_ptr<native_collectives> native(std::span<const std::size_t> members, std::uint32_t channel) override {
    return std::make_unique<recorded_collectives<Device>>(ledgers_, network_, std::vector<std::size_t>(members.begin(), members.end()), channel);
  }
  [[nodiscard]] channel_origin channels() const override { return network_->channels(); }
  [[nodiscard]] bool carries() const override { return network_->carries(); }

 protected:
  std::shared_ptr<transport> network_;
  std::shared_ptr<call_ledgers> ledgers_;
};

}  // namespace xtrain::testing
