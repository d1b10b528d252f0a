#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/checksum.hpp>

using namespace xtrain;

TEST_CASE("checksums are those of the package xxhash, for every length of the last block") {
  const std::vector<std::pair<std::size_t, const char*>> expected{
      {0, "ef46db3751d8e999"},  {1, "1f25c8d0bc1f4bb6"},  {3, "31d2363f52e564c9"},  {4, "9bb64b7d66ee9fda"},  {7, "9a7b149959ce60d8"},
      {8, "dab99d95c6f90092"},  {31, "a2aa5f33cc4a6119"}, {32, "23c3c17ef790fd97"}, {33, "50a7cfc7ba588784"}, {63, "5e3e54b431c7493c"},
      {64, "0eb64b3ef6eeb01f"}, {100, "a61f8d4c170fe531"}, {1000, "5f235fa033f1a3fb"}};
  for (const auto& one : expected) {
    const std::size_t length = one.first;
    std::string bytes;
    for (std::size_t i = 0; i < length; ++i) bytes += static_cast<char>((i * 7 + 3) % 256);
    CAPTURE(length);
    CHECK(checksum_text(bytes) == one.second);
  }
}

TEST_CASE("any bit that is flipped changes the checksum") {
  std::string bytes(77, 'x');
  const auto before = checksum(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    CHECK(checksum(bytes) != before);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
}

TEST_CASE("sampled checksums see the first and the last byte of a text of any length") {
  CHECK(sampled_checksums("").empty());
  CHECK(sampled_checksums("abc") == std::vector<std::uint64_t>{checksum("abc")});
  for (const std::size_t size : {4095U, 4096U, 4097U, 300'000U, 1'000'000U}) {
    std::string text(size, 'a');
    const auto before = sampled_checksums(text);
    CHECK(before.size() == std::min<std::size_t>(64, (size + 4095) / 4096));
    for (const std::size_t at : {std::size_t{0}, size - 1}) {
      text[at] = 'b';
      CHECK(sampled_checksums(text) != before);
      text[at] = 'a';
    }
  }
  // blocks of whole numbers
  const std::string numbers(4 * 5000, 'a');
  CHECK(sampled_checksums(numbers, 4).size() == 5);
}
