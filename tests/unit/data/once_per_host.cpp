// One rank of a host tokenizes data.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/comm/threads.hpp>
#include <xtrain/data/once_per_host.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/text/byte_tokenizer.hpp>

#include "scratch.hpp"

namespace {

using namespace xtrain;
using namespace std::chrono_literals;

template <class Data>
bool same_rows(const Data& a, const Data& b) {
  bool same = a.size() == b.size() && a.tokens() == b.tokens() && a.longest() == b.longest() && a.largest_token() == b.largest_token() &&
              a.source() == b.source();
  for (std::size_t s = 0; same && s < a.size(); ++s) same = a.begin(s) == b.begin(s) && a.length(s) == b.length(s);
  for (std::size_t i = 0; same && i < a.tokens(); ++i) same = a.at(i) == b.at(i);
  return same;
}

}  // namespace

TEST_CASE("of four ranks one reads the data, and all have it") {
  const scratch_folder folder;
  put_file(folder / "a.txt", "one two three");
  put_file(folder / "b.txt", "four");
  const auto read = [&] {
    dataset all = text_dataset({folder / "a.txt", folder / "b.txt"}, byte_tokenizer());
    all.when_too_long = overlong::truncate;
    return all;
  };
  const dataset alone = read();
  std::atomic<int> reads = 0, right = 0;
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    const dataset mine = once_per_host(*network, [&] {
      ++reads;
      return read();
    });
    bool same = same_rows(mine, alone) && mine.layout() == alone.layout() && mine.when_too_long == overlong::truncate;
    for (std::size_t i = 0; i < mine.tokens(); ++i) same = same && mine.is_target(i) == alone.is_target(i);
    right += same ? 1 : 0;
  });
  CHECK(reads == 1);
  CHECK(right == 4);
}

TEST_CASE("what samples have beside tokens is shared, too") {
  const auto read = [] {
    dataset all("made here", sequence_layout::separate);
    const std::vector<token> tokens{1, 2, 3}, teacher{4, 5, 6, 7, 8, 9};
    const std::vector<float> weights{0, 1, 0.5}, log_probs{-1, -2, -3, -4, -5, -6};
    all.add(tokens, [](std::size_t) { return true; },
            {.label = 1, .reference_log_prob = -2.5, .token_weights = weights, .teacher_tokens = teacher, .teacher_log_probs = log_probs});
    all.finish();
    return all;
  };
  std::atomic<int> right = 0;
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const dataset mine = once_per_host(*network, read);
    right += mine.labels()[0] == 1 && mine.reference_log_probs()[0] == -2.5 && mine.token_weights()[2] == 0.5F && mine.top_k() == 2 &&
                     mine.teacher_tokens()[5] == 9 && mine.teacher_log_probs()[5] == -6.0F && mine.fingerprint() == read().fingerprint()
                 ? 1
                 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("rows of sentences are shared with all that is known of them") {
  std::atomic<int> reads = 0, right = 0;
  const auto read = [] {
    sentence_dataset all("made here");
    sentence_row row;
    for (const token id : {5, 6, 7}) row.add(id, id != 5, id == 7);
    row.second = 2;
    row.label = 1;
    all.add(row);
    all.labels = {"no", "yes, and more of it"};
    all.masking = word_masking{.mask = 3, .vocab_size = 9, .share = 0.5};
    all.finish();
    return all;
  };
  run_ranks(3, [&](const std::shared_ptr<transport>& network) {
    const sentence_dataset mine = once_per_host(*network, [&] {
      ++reads;
      return read();
    });
    const sentence_dataset alone = read();
    const bool same = same_rows(mine, alone) && mine.labels == alone.labels && mine.masking && mine.masking->mask == 3 && mine.masking->share == 0.5 &&
                      mine.label(0) == 1 && mine.second(0) == 2 && mine.maskable(1) && !mine.maskable(0) && mine.continues(2) && mine.has_labels();
    right += same ? 1 : 0;
  });
  CHECK(reads == 1);
  CHECK(right == 3);
}

TEST_CASE("ranks wait for data longer than for messages, and hear of what is wrong with it") {
  const auto slow = [](bool fails) {
    std::this_thread::sleep_for(1200ms);
    require<data_error>(!fails, "the data is of no use");
    dataset all("made here", sequence_layout::stream);
    all.add(std::vector<token>{1, 2, 3});
    all.finish();
    return all;
  };
  std::atomic<int> right = 0;
  run_ranks(2, [&](const std::shared_ptr<transport>& network) { right += once_per_host(*network, [&] { return slow(false); }, 100ms).tokens() == 3 ? 1 : 0; },
            {.timeout = 400ms});
  CHECK(right == 2);
  CHECK_THROWS_WITH_AS(run_ranks(2,
                                 [&](const std::shared_ptr<transport>& network) {
                                   (void)once_per_host(
                                       *network, [&] { return slow(true); }, 100ms);
                                 },
                                 {.timeout = 400ms}),
                       "the data is of no use", data_error);
}

TEST_CASE("one rank has its data in memory, as if there were no others") {
  run_ranks(1, [&](const std::shared_ptr<transport>& network) {
    const dataset mine = once_per_host(*network, [] {
      dataset all("made here", sequence_layout::stream);
      all.add(std::vector<token>{1, 2, 3});
      all.finish();
      return all;
    });
    CHECK(mine.tokens() == 3);
  });
}

TEST_CASE("a file that is not the first rank's is not taken for the data") {
  dataset all("made here", sequence_layout::stream);
  all.add(std::vector<token>{1, 2, 3});
  all.finish();
  const detail::packed_values packed = detail::pack(all);
  CHECK(detail::unpack<dataset>(packed).has_value());
  const auto with = [&](auto&& change) {
    std::vector<std::byte> bytes = packed.bytes();
    detail::shared_array first;
    std::memcpy(&first, bytes.data(), sizeof(first));
    change(first);
    std::memcpy(bytes.data(), &first, sizeof(first));
    return detail::unpack<dataset>(detail::packed_values(bytes)).has_value();
  };
  CHECK_FALSE(with([](detail::shared_array& one) { ++one.inode; }));
  CHECK_FALSE(with([](detail::shared_array& one) { ++one.count; }));
  CHECK_FALSE(with([](detail::shared_array& one) { one.process = 0x3fffffff; }));  // no process has this id
  CHECK_FALSE(with([](detail::shared_array& one) { one.descriptor = 1 << 20; }));
}
