// A file that ranks write together has one writer's bytes, or does not exist.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/io/write_together.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

using sink_at = std::function<void(std::size_t, const void*, std::size_t)>;

/// Three tensors of bytes; each rank writes 1/n in alternating pieces of seven bytes.
std::vector<tensor_to_write> tensors_of(std::size_t rank, std::size_t ranks) {
  std::vector<tensor_to_write> tensors;
  for (const std::size_t size : {0U, 40U, 1000U}) {
    const auto bytes = std::make_shared<std::vector<unsigned char>>(size);
    std::iota(bytes->begin(), bytes->end(), static_cast<unsigned char>(size));
    tensors.push_back({.name = concat("of ", size), .dtype = "U8", .shape = {size}, .bytes = size});
    tensors.back().produce = [bytes](const auto& sink) { sink(bytes->data(), bytes->size()); };
    tensors.back().produce_own = [=](const sink_at& sink) {
      for (std::size_t at = 0; at < size; at += 7)
        if (at / 7 % ranks == rank) sink(at, bytes->data() + at, std::min<std::size_t>(7, size - at));
    };
  }
  return tensors;
}

/// A rank on another file system than the first rank's.
class elsewhere final : public file_writers {
 public:
  explicit elsewhere(group& ranks) : ranks_(ranks) {}
  [[nodiscard]] std::size_t rank() const override { return ranks_.rank(); }
  [[nodiscard]] std::size_t size() const override { return ranks_.size(); }
  [[nodiscard]] std::size_t sum(std::size_t value) override { return ranks_.sum(value); }
  [[nodiscard]] std::string said_by_first(std::string text) override {
    return (rank() == 2 ? "elsewhere/" : "") + ranks_.said_by_first(std::move(text));
  }

 private:
  writers_of<group> ranks_;
};

/// Runs work(ranks, tensors) on four ranks: all throw these words, except the failing rank, which reports its own error.
template <class Work>
void all_refuse(const std::string& words, Work&& work) {
  std::array<std::string, 4> said;
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    group world(network);
    writers_of ranks(world);
    try {
      work(ranks, tensors_of(ranks.rank(), 4));
    } catch (const error& problem) {
      said[ranks.rank()] = problem.what();
    }
  });
  for (const std::string& one : said) {
    CAPTURE(one);
    CHECK((one.find(words) != std::string::npos || one == "my own"));
  }
}

}  // namespace

TEST_CASE("ranks that write a file together write what one writes") {
  const scratch_folder folder;
  write_safetensors(folder / "one", tensors_of(0, 1));
  for (const std::size_t ranks : {1U, 2U, 4U, 7U}) {
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      group world(network);
      writers_of writers(world);
      CHECK(write_safetensors_together(writers, folder / "many", tensors_of(writers.rank(), ranks)) == ranks);
    });
    CHECK(get_file(folder / "many") == get_file(folder / "one"));
    CHECK(folder.files() == std::vector<std::string>{"many", "one"});
  }
}

TEST_CASE("where a rank does not see the file, the first writes all of it") {
  const scratch_folder folder;
  write_safetensors(folder / "one", tensors_of(0, 1));
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    group world(network);
    elsewhere writers(world);
    CHECK(write_safetensors_together(writers, folder / "many", tensors_of(writers.rank(), 4)) == 1);
  });
  CHECK(get_file(folder / "many") == get_file(folder / "one"));
  CHECK(folder.files() == std::vector<std::string>{"many", "one"});
}

TEST_CASE("a rank that fails lets all of them fail, and what had the name stays") {
  const scratch_folder folder;
  put_file(folder / "file", "what was there");
  all_refuse("must be written by all 4 ranks; 1 of the others could not", [&](file_writers& ranks, std::vector<tensor_to_write> tensors) {
    if (ranks.rank() == 2) tensors[1].produce_own = [](const sink_at&) { fail<data_error>("my own"); };
    (void)write_safetensors_together(ranks, folder / "file", std::move(tensors));
  });
  all_refuse("ranks must write 1040 bytes together; they wrote 1033", [&](file_writers& ranks, std::vector<tensor_to_write> tensors) {
    if (ranks.rank() == 3)
      for (tensor_to_write& tensor : tensors)
        if (tensor.bytes == 40) tensor.produce_own = [](const sink_at& sink) { sink(0, "", 0); };
    (void)write_safetensors_together(ranks, folder / "file", std::move(tensors));
  });
  {
    const limited_file_size full(900);  // the first rank cannot create it
    all_refuse("must be written", [&](file_writers& ranks, std::vector<tensor_to_write> tensors) {
      (void)write_safetensors_together(ranks, folder / "file", std::move(tensors));
    });
  }
  all_refuse("must be writ", [&](file_writers& ranks, std::vector<tensor_to_write> tensors) {
    (void)write_safetensors_together(ranks, folder / "no such folder/file", std::move(tensors));
  });
  CHECK(get_file(folder / "file") == "what was there");
  CHECK(folder.files() == std::vector<std::string>{"file"});
}

TEST_CASE("a file that cannot be made durable later says so") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const detail::descriptor other(ends[0]);
  unsynced_files files;
  files.add(detail::descriptor(ends[1]), "a pipe");  // a pipe cannot be synced to disk
  CHECK_THROWS_WITH_AS(files.sync(), doctest::Contains("a pipe: must be written whole; the system says"), file_error);
}
