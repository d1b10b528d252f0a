// A subset of a run's ranks as a transport.
#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <vector>

#include <xtrain/comm/part.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/testing/transport_conformance.hpp>

using namespace xtrain;

TEST_CASE("parts of a run pass the conformance suite beside one another, and across") {
  std::vector<std::string> problems;
  std::mutex mutex;
  run_ranks(6, [&](const std::shared_ptr<transport>& network) {
    const std::size_t rank = network->rank();
    for (const auto& part : {std::make_shared<transport_part>(network, std::vector<std::size_t>{rank / 3 * 3, rank / 3 * 3 + 1, rank / 3 * 3 + 2}, 0),
                             std::make_shared<transport_part>(network, std::vector<std::size_t>{rank % 3, rank % 3 + 3}, 100)}) {
      CHECK(part->carries());
      for (const std::string& problem : testing::transport_conformance(part)) {
        const std::lock_guard lock(mutex);
        problems.push_back(problem);
      }
    }
  });
  CHECK(problems == std::vector<std::string>{});
}

TEST_CASE("a part's ranks are counted in the order of its members") {
  run_ranks(3, [](const std::shared_ptr<transport>& network) {
    const transport_part backwards(network, {2, 1, 0}, 0);
    CHECK(backwards.rank() == 2 - network->rank());
    CHECK(backwards.size() == 3);
    CHECK_THROWS_WITH_AS(transport_part(network, {}, 0), doctest::Contains("creates it and must be a member"), config_error);
    CHECK_THROWS_WITH_AS(transport_part(network, {network->rank(), 3}, 0), "transport_part: members must be below the 3 ranks there are; given 3",
                         config_error);
  });
}

TEST_CASE("transports that send on the same channels are known, whatever wraps them") {
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const auto channels = [](const std::shared_ptr<transport>& of) { return of->channels(); };
    const auto second = separate_channels(network), again = separate_channels(network), third = separate_channels(second);
    CHECK(channels(network).overlaps(channels(separate_channels(network, 0))));
    CHECK(channels(second).overlaps(channels(again)));
    CHECK(channels(third).overlaps(channels(separate_channels(network, 2))));
    CHECK(channels(second).overlaps(channels(std::make_shared<transport_part>(second, std::vector<std::size_t>{0, 1}, 7))));
    CHECK_FALSE(channels(network).overlaps(channels(second)));
    CHECK_FALSE(channels(second).overlaps(channels(third)));
    CHECK_FALSE(channels(network).overlaps(channels(one_rank())));
    CHECK_FALSE(channel_origin{}.overlaps(channel_origin{}));
  });
}
