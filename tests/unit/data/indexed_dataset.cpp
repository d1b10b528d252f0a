// Megatron's indexed datasets: files byte for byte, damaged and interrupted files, sample order against numpy's.
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <xtrain/comm/threads.hpp>
#include <xtrain/data/gpt_dataset.hpp>
#include <xtrain/data/indexed_dataset.hpp>
#include <xtrain/data/indexed_instructions.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/once_per_host.hpp>

#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

template <class T>
std::string bytes(std::initializer_list<T> values) {
  std::string text;
  for (const T value : values) text.append(reinterpret_cast<const char*>(&value), sizeof value);
  return text;
}

/// An index as Megatron's builder writes it.
std::string index_of(std::uint8_t code, std::initializer_list<std::int32_t> lengths, std::initializer_list<std::int64_t> offsets,
                     std::initializer_list<std::int64_t> documents) {
  return std::string("MMIDIDX\0\0", 9) + bytes<std::uint64_t>({1}) + bytes<std::uint8_t>({code}) +
         bytes<std::uint64_t>({lengths.size(), documents.size()}) + bytes(lengths) + bytes(offsets) + bytes(documents);
}

std::vector<token> tokens_of(const indexed_file& file, std::size_t sequence, std::size_t vocabulary = std::size_t{1} << 30) {
  std::vector<token> tokens(file.length(sequence));
  file.read(file.begin(sequence), tokens, vocabulary);
  return tokens;
}

template <class Error>
std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& problem) {
    return problem.what();
  }
  return "";
}

void check_says(const std::string& message, std::initializer_list<const char*> parts) {
  CAPTURE(message);
  for (const char* part : parts) CHECK_MESSAGE(message.find(part) != std::string::npos, part);
}

/// Reads a pair and writes it again.
void rewrite(const std::string& from, const std::string& to) {
  const indexed_file file(from);
  indexed_writer writer(to, file.dtype());
  for (std::size_t d = 0; d < file.documents(); ++d) {
    for (std::size_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s) writer.add_sequence(tokens_of(file, s));
    writer.end_document();
  }
  writer.finish();
  CHECK(get_file(to + ".bin") == get_file(from + ".bin"));
  CHECK(get_file(to + ".idx") == get_file(from + ".idx"));
}

/// The synthetic file of make_gpt_samples.py: document d has (37 d + 11) mod 53 tokens, numbered through.
void write_synthetic(const std::string& prefix, std::size_t documents = 40) {
  indexed_writer writer(prefix, indexed_dtype::u16);
  token next = 0;
  for (std::size_t d = 0; d < documents; ++d) {
    std::vector<token> tokens((d * 37 + 11) % 53);
    std::iota(tokens.begin(), tokens.end(), next);
    next += static_cast<token>(tokens.size());
    writer.add_document(tokens);
  }
  writer.finish();
}

const safetensors_file& expected() {
  static const safetensors_file file(golden::folder("gpt_samples") + "/expected.safetensors");
  return file;
}

/// A sample's tokens, assembled by its index.
std::vector<token> sample_of(const indexed_file& file, const gpt_index& index, std::size_t sample, std::size_t seq_length) {
  std::vector<token> all, result;
  for (const std::uint32_t d : index.documents) {
    const auto tokens = tokens_of(file, d);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index.order[sample] * seq_length);
  return {begin, begin + static_cast<std::ptrdiff_t>(seq_length) + 1};
}

std::vector<token> row_of(const host_batch& batch, std::size_t r) {
  const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(r * batch.t);
  std::vector<token> row(begin, begin + static_cast<std::ptrdiff_t>(batch.t));
  row.push_back(batch.targets[(r + 1) * batch.t - 1]);
  return row;
}

std::vector<token> read_all(const sample_source& from, std::size_t sample) {
  std::vector<token> tokens(from.seq_length() + 1);
  from.read(sample, 0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("a written pair has the bytes of Megatron's builder") {
  const scratch_folder folder;
  indexed_writer writer(folder / "two", indexed_dtype::u16);
  writer.add_sequence(std::vector<token>{1, 65535});
  writer.add_sequence({});
  writer.end_document();
  writer.extend(std::vector<token>{7});
  writer.extend(std::vector<token>{8, 9});
  writer.end_sequence();
  writer.end_document();
  writer.end_document();  // without a sequence
  CHECK(folder.files() == std::vector<std::string>{"two.bin.part", "two.idx.part"});
  writer.finish();
  CHECK(folder.files() == std::vector<std::string>{"two.bin", "two.idx"});
  CHECK(get_file(folder / "two.bin") == bytes<std::uint16_t>({1, 65535, 7, 8, 9}));
  CHECK(get_file(folder / "two.idx") == index_of(8, {2, 0, 3}, {0, 4, 4}, {0, 2, 3, 3}));

  const indexed_file file(folder / "two");
  CHECK(file.sequences() == 3);
  CHECK(file.documents() == 3);
  CHECK(file.tokens() == 5);
  CHECK(tokens_of(file, 0) == std::vector<token>{1, 65535});
  CHECK(tokens_of(file, 2) == std::vector<token>{7, 8, 9});
  CHECK(file.document_of(0) == 0);
  CHECK(file.document_of(2) == 1);
  CHECK(file.sequence_of(3) == 2);

  for (const auto dtype : {indexed_dtype::u8, indexed_dtype::i8, indexed_dtype::i16, indexed_dtype::i32, indexed_dtype::i64}) {
    indexed_writer other(folder / "other", dtype);
    other.add_document(std::vector<token>{100, 3});
    other.finish();  // replaces the previous file
    const indexed_file read(folder / "other");
    CHECK(read.dtype() == dtype);
    CHECK(tokens_of(read, 0) == std::vector<token>{100, 3});
    rewrite(folder / "other", folder / "again");
  }
  CHECK(indexed_dtype_for(65499) == indexed_dtype::u16);
  CHECK(indexed_dtype_for(65500) == indexed_dtype::i32);
}

TEST_CASE("published pairs, read and written again, are the same") {
  const std::string published = test_data("formats/megatron");
  if (published.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to formats/megatron");
    return;
  }
  const scratch_folder folder;
  rewrite(published + "/flagai/demo_text_document", folder / "flagai");
  rewrite(published + "/bigscience/meg-gpt2-openwebtext_text_document", folder / "bigscience");

  const indexed_file flagai(published + "/flagai/demo_text_document");
  CHECK(flagai.documents() == 20);
  for (std::size_t s = 0; s < flagai.sequences(); ++s) {
    CHECK(tokens_of(flagai, s, 50257).front() == 50256);
    CHECK(tokens_of(flagai, s, 50257).back() == 50256);
  }
  // 90 training and 10 validation samples, seed 2023; numbers of Megatron Core 0.16.1
  const gpt_samples train({{published + "/flagai/demo_text_document", 1}}, false,
                          {.seq_length = 1024, .vocab_size = 50257, .samples = 90, .seed = 2023, .split = "90,10,0"});
  const gpt_samples valid(
      {{published + "/flagai/demo_text_document", 1}}, false,
      {.seq_length = 1024, .vocab_size = 50257, .samples = 10, .seed = 2023, .split = "90,10,0", .part = data_split::validation});
  CHECK(train.size() == 90);
  const auto first = [](const std::vector<std::uint32_t>& values) {
    return std::vector<std::uint32_t>(values.begin(), values.begin() + 8);
  };
  CHECK(first(train.index(0).documents) == std::vector<std::uint32_t>{0, 10, 16, 4, 14, 9, 0, 9});
  CHECK(first(train.index(0).order) == std::vector<std::uint32_t>{23, 62, 32, 18, 45, 17, 65, 80});
  CHECK(train.index(0).order.size() == 94);
  CHECK(train.index(0).samples[9] == gpt_index::place{7, 2358});
  CHECK(first(valid.index(0).documents) == std::vector<std::uint32_t>{19, 18, 18, 18, 18, 19, 18, 18});
  CHECK(first(valid.index(0).order) == std::vector<std::uint32_t>{5, 6, 4, 0, 7, 3, 2, 9});
  CHECK(valid.index(0).samples[9] == gpt_index::place{21, 414});
  for (const std::size_t sample : {std::size_t{0}, std::size_t{1}, std::size_t{89}})
    CHECK(read_all(train, sample) == sample_of(train.file(0), train.index(0), sample, 1024));
}

TEST_CASE("a token that its dtype does not have is refused, and nothing is written of it") {
  const scratch_folder folder;
  indexed_writer writer(folder / "small", indexed_dtype::u8);
  writer.add_document(std::vector<token>{255});
  check_says(message_of<data_error>([&] {
               writer.add_document(std::vector<token>{1, 256});
             }),
             {"small.bin", "[0, 255]", "document 1 has 256"});
  CHECK_THROWS_AS(writer.add_document(std::vector<token>{-1}), data_error);
  writer.extend(std::vector<token>{5});
  CHECK_THROWS_AS(writer.end_document(), config_error);
  writer.end_sequence();
  CHECK_THROWS_AS((void)writer.sync(), config_error);
  CHECK_THROWS_AS(writer.finish(), config_error);
  writer.end_document();
  CHECK(message_of<file_error>([&] { indexed_writer(folder / "small", indexed_dtype::u8); }).find("another program is writing it") !=
        std::string::npos);
  writer.finish();
  CHECK_THROWS_AS(writer.finish(), config_error);
  CHECK(tokens_of(indexed_file(folder / "small"), 1) == std::vector<token>{5});
}

TEST_CASE("an interrupted writer is continued from a recorded position, and gives the same files") {
  const scratch_folder folder;
  write_synthetic(folder / "whole");
  const indexed_file whole(folder / "whole");
  indexed_position recorded;
  std::uint64_t checksum = 0;
  {
    indexed_writer writer(folder / "cut", indexed_dtype::u16);
    for (std::size_t d = 0; d < 17; ++d) writer.add_document(tokens_of(whole, d));
    recorded = writer.sync();
    checksum = writer.checksum();
    for (std::size_t d = 0; d < 5; ++d) writer.add_document(tokens_of(whole, d));
    (void)writer.sync();
    writer.extend(std::vector<token>{1, 2, 3});
  }
  CHECK(folder.files() == std::vector<std::string>{"cut.bin.part", "cut.idx.part", "whole.bin", "whole.idx"});
  CHECK(recorded.sequences == 17);
  indexed_position wrong = recorded;
  ++wrong.tokens;
  check_says(message_of<file_error>([&] { indexed_writer(folder / "cut", indexed_dtype::u16, wrong); }),
             {"cut.idx.part", "recorded position"});
  wrong = recorded;
  wrong.documents = 1000;
  check_says(message_of<file_error>([&] { indexed_writer(folder / "cut", indexed_dtype::u16, wrong); }), {"cut.idx.part", "4068 bytes"});
  CHECK_THROWS_AS(indexed_writer(folder / "none", indexed_dtype::u16, recorded), damaged_part_error);
  CHECK_THROWS_AS(indexed_writer(folder / "cut", indexed_dtype::u16, recorded, checksum + 1), damaged_part_error);
  {
    indexed_writer writer(folder / "cut", indexed_dtype::u16, recorded, checksum);
    CHECK(writer.position() == recorded);
    CHECK(writer.checksum() == checksum);
    for (std::size_t d = 17; d < whole.documents(); ++d) writer.add_document(tokens_of(whole, d));
    writer.finish();
  }
  CHECK(get_file(folder / "cut.bin") == get_file(folder / "whole.bin"));
  CHECK(get_file(folder / "cut.idx") == get_file(folder / "whole.idx"));
  {
    indexed_writer again(folder / "cut", indexed_dtype::u16);  // replaces the file only when finished
    again.add_document(std::vector<token>{1});
    (void)again.sync();
    CHECK(indexed_file(folder / "cut").sequences() == 40);
    again.discard();
  }
  CHECK(folder.files() == std::vector<std::string>{"cut.bin", "cut.idx", "whole.bin", "whole.idx"});
}

TEST_CASE("a writer that runs out of disk leaves the pair that was there") {
  const scratch_folder folder;
  write_synthetic(folder / "full");
  const std::string before = get_file(folder / "full.idx");
  indexed_writer writer(folder / "full", indexed_dtype::i64);
  std::vector<token> tokens(20000, 7);
  writer.add_document(tokens);
  {
    const limited_file_size limit(60000);
    CHECK_THROWS_AS(writer.finish(), file_error);
  }
  CHECK(get_file(folder / "full.idx") == before);
  CHECK(indexed_file(folder / "full").sequences() == 40);
}

TEST_CASE("damaged indices are refused, with what is wrong") {
  const scratch_folder folder;
  const std::string idx = folder / "a.idx";
  const auto refused = [&](const std::string& index, std::initializer_list<const char*> parts) {
    put_file(idx, index);
    check_says(message_of<file_error>([&] { indexed_file(folder / "a"); }), parts);
  };
  put_file(folder / "a.bin", bytes<std::uint16_t>({1, 2, 3, 4, 5}));
  const std::string good = index_of(8, {2, 3}, {0, 4}, {0, 1, 2});
  put_file(idx, good);
  CHECK(indexed_file(folder / "a").tokens() == 5);
  refused("", {"a.idx", "it has 0 bytes, a header 34"});
  refused(std::string("TNTIDX\0\0", 8) + good, {"a.idx", "TNTIDX"});
  refused("x" + good.substr(1), {"must begin with MMIDIDX"});
  refused(good.substr(0, 9) + bytes<std::uint64_t>({2}) + good.substr(17), {"version must be 1; given 2"});
  refused(index_of(6, {2, 3}, {0, 4}, {0, 1, 2}), {"floating-point dtype (code 6)"});
  refused(index_of(7, {2, 3}, {0, 4}, {0, 1, 2}), {"floating-point dtype (code 7)"});
  refused(index_of(0, {2, 3}, {0, 4}, {0, 1, 2}), {"dtype code", "given 0"});
  refused(index_of(9, {2, 3}, {0, 4}, {0, 1, 2}), {"given 9"});
  refused(good.substr(0, good.size() - 1), {"47 bytes for 2 sequences of 12 bytes and 3 document boundaries"});
  refused(good + "abc", {"3 bytes follow its end"});
  refused(good + "ab", {"mode per sequence", "multimodal"});
  for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    refused(good.substr(0, 18) + bytes<std::uint64_t>({count}) + good.substr(26), {"a.idx", "sequences of 12 bytes"});
    refused(good.substr(0, 26) + bytes<std::uint64_t>({count + 1}) + good.substr(34), {"a.idx: "});
  }
  refused(index_of(8, {2, 3}, {0, 4}, {}), {"document boundaries; given none"});
  refused(index_of(8, {2, -3}, {0, 4}, {0, 1, 2}), {"sequence 1 has the length -3"});
  refused(index_of(8, {2, 3}, {0, 6}, {0, 1, 2}), {"sequence 1 must begin at byte 4", "given 6"});
  refused(index_of(8, {2, 3}, {0, -4}, {0, 1, 2}), {"given -4"});
  refused(index_of(8, {2, 3}, {0, 4}, {1, 1, 2}), {"first document must begin at sequence 0; given 1"});
  refused(index_of(8, {2, 3}, {0, 4}, {0, 2, 1}), {"boundary 2 must lie in [2, 2]; given 1"});
  refused(index_of(8, {2, 3}, {0, 4}, {0, 1, 3}), {"boundary 2 must lie in [1, 2]; given 3"});
  refused(index_of(8, {2, 4}, {0, 4}, {0, 1, 2}), {"a.bin: must hold the 12 bytes of sequences 0 to 1", "it has 10"});
  refused(index_of(8, {2, 2}, {0, 4}, {0, 1, 2}), {"a.bin: must end", "after 8 bytes; it has 10"});
  refused(index_of(8, {2, 2147483647}, {0, 4}, {0, 1, 2}), {"a.bin: must hold the 4294967298 bytes"});
  std::filesystem::remove(folder / "a.bin");
  refused(good, {"a.bin"});
}

TEST_CASE("a token outside the vocabulary is refused with file, document and offset") {
  const scratch_folder folder;
  indexed_writer writer(folder / "t", indexed_dtype::i32);
  writer.add_document(std::vector<token>{1, 2});
  writer.add_sequence(std::vector<token>{3});
  writer.add_sequence(std::vector<token>{4, 5, 50, 6});
  writer.end_document();
  writer.finish();
  const indexed_file file(folder / "t");
  CHECK(tokens_of(file, 2, 51) == std::vector<token>{4, 5, 50, 6});
  check_says(message_of<data_error>([&] { (void)tokens_of(file, 2, 50); }),
             {"t.bin: document 1, sequence 2, offset 2", "[0, 50); given 50"});

  // also in a loader's background thread
  const dataset data = gpt_dataset(folder / "t", {.seq_length = 2, .vocab_size = 50, .split = "1"});
  loader rows(data, {.micro_batch_size = 3, .seq_length = 2});
  check_says(message_of<data_error>([&] { (void)rows.next(); }), {"t.bin: document 1, sequence 2, offset 2"});
  CHECK_NOTHROW(require_tokens_below(data, 50));
  CHECK_THROWS_AS(require_tokens_below(data, 49), config_error);
}

TEST_CASE("shuffles are those of numpy's RandomState") {
  for (const auto& [seed, size] : {std::pair<std::uint64_t, std::size_t>{0, 1000}, {1234, 65537}, {2023, 300000}}) {
    std::vector<std::int64_t> values(size);
    std::iota(values.begin(), values.end(), 0);
    numpy_random_state(seed).shuffle(std::span(values));
    const auto want = golden::numbers(expected(), concat("shuffle.", seed));
    for (std::size_t i = 0; i < 8; ++i) CHECK(static_cast<double>(values[i]) == want[i]);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < size; ++i) sum = (sum + (i + 1) * static_cast<std::uint64_t>(values[i])) % 16777213;
    CHECK(static_cast<double>(sum) == want[8]);
  }
  CHECK_THROWS_AS(numpy_random_state(std::uint64_t{1} << 32), config_error);
}

TEST_CASE("the order of samples is Megatron's") {
  const scratch_folder folder;
  write_synthetic(folder / "data");
  const indexed_file file(folder / "data");
  struct example {
    const char* name;
    std::size_t first, last, samples;
    std::uint64_t seed;
  };
  for (const example& one :
       {example{"one", 0, 40, 30, 1234}, {"whole", 3, 33, 190, 7}, {"separate", 0, 40, 140, 2023}, {"short", 38, 40, 9, 4294967295}}) {
    CAPTURE(one.name);
    const gpt_index index = build_gpt_index(file, one.first, one.last, 16, one.samples, one.seed);
    const auto want = [&](const char* what) { return golden::numbers(expected(), concat(one.name, ".", what)); };
    CHECK(static_cast<double>(index.epochs) == want("epochs")[0]);
    CHECK((index.separate_last_epoch ? 1.0 : 0.0) == want("separate")[0]);
    CHECK(std::vector<double>(index.documents.begin(), index.documents.end()) == want("documents"));
    std::vector<double> places;
    for (const gpt_index::place& place : index.samples)
      places.insert(places.end(), {static_cast<double>(place.document), static_cast<double>(place.offset)});
    CHECK(places == want("samples"));
    CHECK(std::vector<double>(index.order.begin(), index.order.end()) == want("order"));
  }
  CHECK_THROWS_AS((void)build_gpt_index(file, 5, 5, 16, 1, 1), data_error);
  CHECK_THROWS_AS((void)build_gpt_index(file, 0, 41, 16, 1, 1), config_error);
}

TEST_CASE("splits are Megatron's document ranges") {
  const std::pair<const char*, std::size_t> cases[] = {{"969,30,1", 20}, {"969,30,1", 10000}, {"90,5,5", 33},
                                                       {"100", 7},       {"1/1/1", 100},      {"98,2,0", 125}};
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const auto ranges = split_documents(cases[i].first, cases[i].second);
    CHECK(std::vector<double>(ranges.begin(), ranges.end()) == golden::numbers(expected(), concat("split.", i)));
  }
  for (const char* wrong : {"", "a", "1,2,3,4", "0,0,0", "1,-1", "nan", "1,,2", "inf"})
    CHECK_THROWS_AS((void)split_documents(wrong, 10), config_error);
  CHECK_THROWS_AS((void)split_documents("0,1,1", 3), config_error);  // rounds to 2 + 2 of 3: a part of -1
}

TEST_CASE("blends take samples as Megatron's BlendableDataset, of as many as their weights need") {
  std::vector<double> many;
  for (std::size_t k = 0; k < 21; ++k) many.push_back(static_cast<double>(k % 5 + 1));
  const std::pair<const char*, std::vector<double>> cases[] = {{"two", {0.3, 0.7}}, {"three", {1, 1, 2}}, {"many", many}};
  const scratch_folder folder;
  write_synthetic(folder / "a");
  write_synthetic(folder / "b", 23);
  for (const auto& one : cases) {
    const std::string name = one.first;
    const std::vector<double>& weights = one.second;
    CAPTURE(name);
    const auto want = golden::numbers(expected(), concat("blend.", name)),
               counts = golden::numbers(expected(), concat("blend.", name, ".samples"));
    std::vector<gpt_source> sources;
    for (std::size_t d = 0; d < weights.size(); ++d) sources.push_back({folder / (d % 2 == 0 ? "a" : "b"), weights[d]});
    const gpt_samples blend(sources, true, {.seq_length = 16, .vocab_size = 2000, .samples = 300, .split = "1"});
    std::vector<std::size_t> taken(weights.size());
    for (std::size_t i = 0; i < 300; ++i) {
      const auto [source, number] = blend.locate(i);
      CHECK(static_cast<double>(source) == want[i]);
      CHECK(number == taken[source]++);
      if (i % 50 == 0) CHECK(read_all(blend, i) == sample_of(blend.file(source), blend.index(source), number, 16));
    }
    for (std::size_t d = 0; d < weights.size(); ++d) {  // the order depends on the number of requested samples
      const gpt_index same = build_gpt_index(blend.file(d), 0, blend.file(d).sequences(), 16, static_cast<std::size_t>(counts[d]), 1234);
      CHECK(same.order == blend.index(d).order);
    }
  }
  CHECK_THROWS_AS(gpt_samples({{folder / "a", 1}, {folder / "b", 1}}, false, {.seq_length = 16, .vocab_size = 2000, .samples = 3}),
                  config_error);
  CHECK_THROWS_AS(gpt_samples({{folder / "a", 1}, {folder / "b", 0}}, true, {.seq_length = 16, .vocab_size = 2000, .samples = 3}),
                  config_error);
  CHECK_THROWS_AS(gpt_samples({{folder / "a", 1}}, true, {.seq_length = 16, .vocab_size = 2000}), config_error);
  check_says(message_of<data_error>([&] {
               gpt_samples({{folder / "a", 1}}, false, {.seq_length = 16, .vocab_size = 2000, .split = "0,1,0"});
             }),
             {"a: the training part of the split 0,1,0 must have documents", "of 40"});

  const auto [sources, weighted] = parse_data_path({"0.5", "x", "2", "y z"});
  CHECK(weighted);
  CHECK(sources[1].prefix == "y z");
  CHECK(sources[0].weight == 0.5);
  CHECK(!parse_data_path({"x"}).second);
  for (const auto& words : {std::vector<std::string>{}, {"x", "y"}, {"1", "x", "2"}, {"0", "x"}, {"-1", "x"}})
    CHECK_THROWS_AS((void)parse_data_path(words), config_error);
}

TEST_CASE("a loader reads them in their order, on any number of ranks, and goes on where it stopped") {
  const scratch_folder folder;
  write_synthetic(folder / "data");
  const dataset data = gpt_dataset(folder / "data", {.seq_length = 16, .vocab_size = 2000, .samples = 48, .seed = 5, .split = "8,1,1"});
  const dataset held_out =
      gpt_dataset(folder / "data", {.seq_length = 16, .vocab_size = 2000, .seed = 5, .split = "8,1,1", .part = data_split::validation});
  CHECK(data.size() == 48);
  CHECK(data.tokens() == 48 * 16);
  CHECK(data.longest() == 17);
  CHECK(data.layout() == sequence_layout::stream);
  CHECK(held_out.size() > 0);
  std::vector<std::vector<token>> all;
  for (std::size_t i = 0; i < 48; ++i) all.push_back(read_all(*data.samples(), i));

  for (const std::size_t ranks : {1U, 2U})
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CAPTURE(rank);
      const std::size_t micro = 2, accumulated = 3;
      loader rows(data, {.micro_batch_size = micro,
                         .gradient_accumulation_steps = accumulated,
                         .seq_length = 16,
                         .shuffle = true,
                         .seed = 9,
                         .ranks = ranks,
                         .rank = rank});
      CHECK(rows.steps_per_epoch() == 48 / (micro * accumulated * ranks));
      loader_state saved;
      std::vector<token> next;
      for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step) {
        if (step == 3) saved = rows.state();
        const auto batches = rows.next();
        for (std::size_t m = 0; m < accumulated;
             ++m) {  // MegatronPretrainingSampler: each rank has its slice of every micro-batch over all ranks
          CHECK(batches[m].target_count == micro * 16);
          for (std::size_t r = 0; r < micro; ++r)
            CHECK(row_of(batches[m], r) == all[((step * accumulated + m) * ranks + rank) * micro + r]);
        }
        if (step == 3) next = batches[1].tokens;
      }
      rows.restore(saved);
      CHECK(rows.next()[1].tokens == next);
    }
  const loader unequal(
      data,
      {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 16, .ranks = 2, .rank = 1, .micro_batch_sizes = {1, 3}});
  std::vector<host_batch> batches;
  unequal.fill({0, 1}, batches);  // samples 8 to 15: the first two are the first micro-batch of both ranks
  CHECK(row_of(batches[0], 0) == all[9]);
  CHECK(row_of(batches[1], 0) == all[13]);

  check_says(message_of<config_error>([&] { loader(data, {.micro_batch_size = 2, .seq_length = 8}); }),
             {"data: the sequence length must be", "16; given 8"});
  dataset read_only = gpt_dataset(folder / "data", {.seq_length = 16, .vocab_size = 2000});
  CHECK_THROWS_AS(read_only.finish(), config_error);
  CHECK_THROWS_AS((void)read_only.begin(0), config_error);
  CHECK_THROWS_AS((void)read_only.at(0), config_error);
  CHECK_THROWS_AS((void)read_only.is_target(0), config_error);
  CHECK_THROWS_AS((void)read_only.fingerprint(), config_error);
  CHECK_THROWS_AS((void)gpt_dataset(folder / "data", {.seq_length = 16}), config_error);
  CHECK_THROWS_AS((void)gpt_dataset(folder / "data", {.vocab_size = 16}), config_error);
}

TEST_CASE("several epochs of all samples") {
  const scratch_folder folder;
  write_synthetic(folder / "data");
  const auto samples = [&](std::size_t epochs) {
    return gpt_dataset(folder / "data", {.seq_length = 16, .vocab_size = 2000, .epochs = epochs, .split = "1"}).size();
  };
  const std::size_t tokens = indexed_file(folder / "data").tokens();
  CHECK(samples(1) == (tokens - 1) / 16);
  CHECK(samples(3) == (3 * tokens - 1) / 16);
}

TEST_CASE("what decides the samples is what a resumed run is compared by") {
  const scratch_folder folder;
  write_synthetic(folder / "data");
  const gpt_options usual{.seq_length = 16, .vocab_size = 2000, .samples = 50};
  const std::vector<gpt_source> one{{folder / "data", 1}}, two{{folder / "data", 1}, {folder / "data", 0.5}};
  const auto identity = [&](const gpt_options& with, const std::vector<gpt_source>& from, bool blended = false) {
    return gpt_dataset(from, blended, with).identity();
  };
  const std::string first = identity(usual, one);
  CHECK(first.starts_with(folder / "data"));
  CHECK(first.find("split 969,30,1, training part; seed 1234; 50 samples of 16 tokens") != std::string::npos);
  CHECK(identity(usual, one) == first);
  std::set<std::string> all{first, identity(usual, one, true), identity(usual, two, true)};
  for (const auto change : {+[](gpt_options& o) { o.seed = 3; }, +[](gpt_options& o) { o.samples = 51; }, +[](gpt_options& o) { o.split = "1"; },
                            +[](gpt_options& o) { o.seq_length = 8; }, +[](gpt_options& o) { o.part = data_split::validation; }}) {
    gpt_options other = usual;
    change(other);
    all.insert(identity(other, one));
  }
  CHECK(all.size() == 8);

  // equal sizes, different contents: a token, or a document's sequences
  const auto change_byte = [&](const char* file, std::size_t at) {
    std::fstream bytes(folder / file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(bytes.get());
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(static_cast<char>(before ^ 1));
  };
  const std::string contents = first.substr(0, first.find("; checksum "));
  CHECK(first.size() == contents.size() + 11 + 16);
  change_byte("data.bin", 0);
  const std::string changed = identity(usual, one);
  CHECK(changed != first);
  CHECK(changed.starts_with(contents));
  change_byte("data.bin", 0);
  CHECK(identity(usual, one) == first);
  const std::size_t last = std::filesystem::file_size(folder / "data.bin") - 2;  // the lower byte of the last token
  change_byte("data.bin", last);
  CHECK(identity(usual, one) != first);
  change_byte("data.bin", last);
}

TEST_CASE("once_per_host: every rank maps the files itself") {
  const scratch_folder folder;
  write_synthetic(folder / "data");
  const auto make = [&] { return gpt_dataset(folder / "data", {.seq_length = 16, .vocab_size = 2000}); };
  const dataset alone = make();
  std::atomic<int> reads = 0, right = 0;
  run_ranks(3, [&](const std::shared_ptr<transport>& network) {
    const dataset mine = once_per_host(*network, [&] {
      ++reads;
      return make();
    });
    right += mine.size() == alone.size() && read_all(*mine.samples(), 7) == read_all(*alone.samples(), 7) ? 1 : 0;
  });
  CHECK(reads == 3);
  CHECK(right == 3);
}

TEST_CASE("instruction datasets: three files that belong together") {
  const scratch_folder folder;
  {
    instruction_writer writer(folder / "alpaca_packed");
    writer.add_document(std::vector<token>{5, 6, 7, 8}, [](std::size_t i) { return i >= 2; });
    const auto recorded = writer.sync();
    CHECK(recorded == indexed_position{4, 1, 1});
    writer.add_sequence(std::vector<token>{9, 10}, [](std::size_t i) { return i == 1; });
  }
  {
    instruction_writer writer(folder / "alpaca_packed", {4, 1, 1});
    writer.add_sequence(std::vector<token>{70000, 11, 12}, [](std::size_t i) { return i == 2; });
    writer.add_sequence(std::vector<token>{13, 14}, [](std::size_t) { return true; });
    writer.end_document();
    CHECK_THROWS_AS(writer.add_sequence({}, [](std::size_t) { return true; }), data_error);
    writer.finish();
  }
  CHECK(get_file(folder / "alpaca_packed_labels_document.bin") == bytes<std::int32_t>({-100, -100, 7, 8, -100, -100, 12, 13, 14}));
  CHECK(get_file(folder / "alpaca_packed_attention_mask_document.bin") == bytes<std::int32_t>({1, 1, 1, 1, 1, 1, 1, 1, 1}));
  for (const char* name : {"input_ids", "attention_mask", "labels"})
    CHECK(get_file(folder / (concat("alpaca_packed_", name, "_document.idx"))) == index_of(4, {4, 3, 2}, {0, 16, 28}, {0, 1, 3}));

  const dataset data = indexed_instruction_dataset(folder / "alpaca");
  CHECK(data.layout() == sequence_layout::separate);
  CHECK(data.size() == 3);
  CHECK(data.at(4) == 70000);
  std::vector<bool> learned;
  for (std::size_t i = 0; i < data.tokens(); ++i) learned.push_back(data.is_target(i));
  CHECK(learned == std::vector<bool>{false, false, true, true, false, false, true, true, true});
  CHECK(indexed_instruction_dataset(folder / "alpaca_packed", {.packed = true}).layout() == sequence_layout::packed);
  CHECK(indexed_instruction_dataset(folder / "alpaca", {.part = data_split::train, .split = "2,1"}).size() == 2);
  CHECK(indexed_instruction_dataset(folder / "alpaca", {.part = data_split::validation, .split = "2,1"}).at(0) == 13);

  const auto rewritten = [&](const char* name, std::initializer_list<std::int32_t> values) {
    put_file(folder / concat("alpaca_packed_", name, "_document.bin"), bytes(values));
  };
  const auto refused = [&](std::initializer_list<const char*> parts) {
    check_says(message_of<error>([&] { (void)indexed_instruction_dataset(folder / "alpaca"); }), parts);
  };
  rewritten("labels", {-100, -100, 7, 8, -100, -100, 13, 13, 14});
  refused({"alpaca_packed_labels_document.bin: document 1, sequence 1, offset 2", "the token, 12, or -100; given 13"});
  rewritten("labels", {-100, -100, 7, 8, -100, -100, 12, 13, -100});
  rewritten("attention_mask", {1, 1, 1, 1, 1, 1, 1, 1, 0});
  CHECK(indexed_instruction_dataset(folder / "alpaca").length(2) == 1);  // padding is left out
  rewritten("attention_mask", {1, 0, 1, 1, 1, 1, 1, 1, 1});
  refused({"attention_mask_document.bin: document 0, sequence 0, offset 1", "given 0"});
  rewritten("attention_mask", {1, 1, 1, 0, 1, 1, 1, 1, 1});
  refused({"labels_document.bin: document 0, sequence 0, offset 3", "padding"});
  rewritten("input_ids", {5, 6, 7, -8, 70000, 11, 12, 13, 14});
  refused({"input_ids_document.bin: document 0, sequence 0, offset 3", "given -8"});
  put_file(folder / "alpaca_packed_labels_document.idx", index_of(4, {4, 2, 3}, {0, 16, 24}, {0, 1, 3}));
  refused({"labels_document.idx: sequence 1 must have the 3 tokens"});
  put_file(folder / "alpaca_packed_labels_document.idx", index_of(4, {4, 5}, {0, 16}, {0, 1, 2}));
  refused({"labels_document.idx: must have the 3 sequences"});
  std::filesystem::remove(folder / "alpaca_packed_labels_document.idx");
  refused({"labels_document.idx"});
  check_says(message_of<file_error>([&] { (void)indexed_instruction_dataset(folder / "none"); }),
             {"none: must have an instruction dataset"});
  put_file(folder / "alpaca_input_ids_document.idx", "");
  refused({"must have one instruction dataset"});
}
