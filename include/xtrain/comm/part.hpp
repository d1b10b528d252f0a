// A subset of ranks as a transport.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/channel_origin.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// Members become ranks 0, 1, …. Parts that share two ranks, and direct users of the run's transport between them, need distinct channels: the part's channel
/// i is `first_channel` + i.
class transport_part final : public transport {
 public:
  /// throws config_error when this rank is not a member, or a member is not a rank
  transport_part(std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t first_channel)
      : network_(std::move(network)), members_(std::move(members)), first_channel_(first_channel) {
    const auto own = std::find(members_.begin(), members_.end(), network_->rank());
    require<config_error>(own != members_.end(), "transport_part: rank ", network_->rank(), " creates it and must be a member");
    for (const std::size_t member : members_)
      require<config_error>(member < network_->size(), "transport_part: members must be below the ", network_->size(),
                            " ranks there are; given ", member);
    rank_ = static_cast<std::size_t>(own - members_.begin());
  }

  [[nodiscard]] std::string_view name() const override { return network_->name(); }
  [[nodiscard]] std::size_t rank() const override { return rank_; }
  [[nodiscard]] std::size_t size() const override { return members_.size(); }
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    return network_->send(members_[to], first_channel_ + channel, bytes);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    return network_->receive(members_[from], first_channel_ + channel, bytes);
  }
  [[nodiscard]] std::unique_ptr<native_collectives> native(std::span<const std::size_t> members, std::uint32_t channel) override {
    std::vector<std::size_t> of_network;
    for (const std::size_t member : members) of_network.push_back(members_[member]);
    return network_->native(of_network, first_channel_ + channel);
  }
  [[nodiscard]] channel_origin channels() const override {
    channel_origin of_network = network_->channels();
    of_network.first += first_channel_;
    return of_network;
  }
  [[nodiscard]] std::string stopped() const override { return network_->stopped(); }
  [[nodiscard]] bool carries() const override { return network_->carries(); }

 private:
  std::shared_ptr<transport> network_;
  std::vector<std::size_t> members_;
  std::uint32_t first_channel_;
  std::size_t rank_ = 0;
};

/// The same ranks on other channels, for a second model.
///   number   distinct per second model
[[nodiscard]] inline std::shared_ptr<transport> separate_channels(const std::shared_ptr<transport>& network, std::uint32_t number = 1) {
  std::vector<std::size_t> all(network->size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = rank;
  return std::make_shared<transport_part>(network, std::move(all), number * channels_of_a_model);
}

}  // namespace xtrain
