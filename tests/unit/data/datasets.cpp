#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <xtrain/data/grouped_text_dataset.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include "scratch.hpp"

using namespace xtrain;

static_assert(std::is_constructible_v<loader, dataset&, loader_config> && std::is_constructible_v<loader, const dataset&, loader_config>);
static_assert(!std::is_constructible_v<loader, dataset, loader_config> && !std::is_constructible_v<loader, const dataset, loader_config>);

namespace {

std::string text_of(const dataset& data, std::size_t sample) {
  std::string text;
  for (std::size_t i = data.begin(sample); i < data.begin(sample) + data.length(sample); ++i)
    if (data.at(i) < 256) text.push_back(static_cast<char>(data.at(i)));
    else text += "|";
  return text;
}
std::string learned_of(const dataset& data, std::size_t sample) {
  std::string text;
  for (std::size_t i = data.begin(sample); i < data.begin(sample) + data.length(sample); ++i)
    if (data.is_target(i)) text += data.at(i) < 256 ? std::string(1, static_cast<char>(data.at(i))) : "|";
  return text;
}

dataset samples_of(std::initializer_list<std::size_t> lengths, sequence_layout layout) {
  dataset all("samples", layout);
  token next = 0;
  for (const std::size_t length : lengths) {
    std::vector<token> tokens(length);
    std::iota(tokens.begin(), tokens.end(), next);
    next += 100;
    all.add(tokens);
  }
  return all;
}

}  // namespace

TEST_CASE("files and folders become documents with an end; hidden files are left out") {
  const scratch_folder folder;
  std::filesystem::create_directories(folder / "b/c");
  std::filesystem::create_directories(folder / ".git");
  put_file(folder / "a.txt", "one");
  put_file(folder / "b/c/d.txt", "two");
  put_file(folder / ".hidden", "no");
  put_file(folder / ".git/e", "no");
  put_file(folder / "empty", "");
  const dataset data = text_dataset(folder.path(), byte_tokenizer());
  REQUIRE(data.size() == 2);
  CHECK(text_of(data, 0) == "one|");
  CHECK(text_of(data, 1) == "two|");
  CHECK(data.largest_token() == 256);
  CHECK(text_dataset({folder / "a.txt", folder / "b"}, byte_tokenizer()).tokens() == 8);
  dataset texts("texts", sequence_layout::stream);  // the same samples from texts in memory
  for (const char* text : {"one", "two"}) add_document(texts, byte_tokenizer(), text);
  texts.finish();
  CHECK(texts.fingerprint() == data.fingerprint());
  // two literals are two paths, not an iterator pair
  CHECK_THROWS_WITH_AS((void)text_dataset({"nothing", "here"}, byte_tokenizer()), doctest::Contains("nothing: must be a file"), file_error);
}

TEST_CASE("of a folder nothing is left out in silence: links are followed, and what cannot be read is refused") {
  const scratch_folder folder, elsewhere;
  const auto read = [&] { return text_dataset(folder.path(), byte_tokenizer()); };
  std::filesystem::create_directories(folder / "b");
  put_file(folder / "a.txt", "one");
  put_file(folder / "b/d.txt", "two");
  put_file(elsewhere / "e.txt", "three");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder / "c");
  std::filesystem::create_symlink(elsewhere / "e.txt", folder / "f.txt");
  CHECK(read().tokens() == 4 + 4 + 6 + 6);
  std::filesystem::create_symlink("nothing", folder / "g.txt");
  CHECK_THROWS_WITH_AS((void)read(), doctest::Contains("g.txt: must be a readable file"), file_error);
  std::filesystem::remove(folder / "g.txt");
  std::filesystem::create_directory_symlink("..", folder / "b/up");
  std::filesystem::create_directory_symlink("b", folder / "a link");
  CHECK(read().tokens() == 4 + 4 + 6 + 6);  // each folder once
  std::filesystem::remove(folder / "b/up");
  std::filesystem::permissions(folder / "b", std::filesystem::perms::none);
  if (::geteuid() != 0) CHECK_THROWS_WITH_AS((void)read(), doctest::Contains("b: must be a readable folder"), file_error);  // root reads all
  std::filesystem::permissions(folder / "b", std::filesystem::perms::owner_all);
}

TEST_CASE("what is compressed, in columns or in UTF-16 is no text") {
  using namespace std::string_literals;
  const scratch_folder folder;
  const auto refuses = [&](const std::string& bytes, const char* words) {
    put_file(folder / "x", bytes);
    CHECK_THROWS_WITH_AS((void)text_dataset(folder / "x", byte_tokenizer()), doctest::Contains(words), data_error);
  };
  refuses("\x1F\x8B\x08 and more", "x: must be text in UTF-8; by its first bytes it is compressed: decompress it first");
  refuses("\x28\xB5\x2F\xFD and more", "it is compressed");
  refuses("PK\x03\x04", "it is compressed");
  refuses("PAR1 and more", "it has records in columns: preprocess_data reads them");
  refuses("\xFF\xFE" "a\0b\0"s, "it is in UTF-16: convert it to UTF-8");
  put_file(folder / "x", "PARIS");
  CHECK_NOTHROW((void)text_dataset(folder / "x", byte_tokenizer()));
}

TEST_CASE("data that is not there, or is empty, is an error that names it") {
  const scratch_folder folder;
  put_file(folder / "empty", "");
  CHECK_THROWS_WITH_AS((void)text_dataset(folder / "none", byte_tokenizer()), doctest::Contains("none: must be a file or a folder"),
                       file_error);
  CHECK_THROWS_WITH_AS((void)text_dataset(folder / "empty", byte_tokenizer()),
                       doctest::Contains("empty: must hold text to train on; it is empty"), data_error);
  std::filesystem::create_directories(folder / "nothing");
  CHECK_THROWS_WITH_AS((void)text_dataset(folder / "nothing", byte_tokenizer()), doctest::Contains("the folder is empty"), data_error);
  put_file(folder / "records.jsonl", "\n\n");
  CHECK_THROWS_AS((void)json_text_dataset(folder / "records.jsonl", byte_tokenizer()), data_error);
}

TEST_CASE("a text larger than a piece is the same as in one piece") {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += concat("line ", i, i % 7 == 0 ? "\n\n  indented \xC3\xBC\n" : "\n");
  const scratch_folder folder;
  put_file(folder / "large.txt", text);
  const dataset data = text_dataset(folder / "large.txt", byte_tokenizer());
  CHECK(data.size() == 1);
  CHECK(text_of(data, 0) == text + "|");
  for (std::size_t at = 0; at < text.size();) {  // pieces are cut after line breaks that text follows
    const std::size_t end = detail::piece_end(text, at, 1000);
    REQUIRE(end > at);
    if (end < text.size()) REQUIRE((text[end - 1] == '\n' && text[end] != '\n' && text[end] != ' '));
    at = end;
  }
}

TEST_CASE("what does not fit in memory lies in a file and reads the same") {
  spilled_array<int> small(1 << 10), large(64);
  for (int i = 0; i < 1000; ++i) {
    small.push_back(i);
    large.push_back(i);
  }
  small.finish();
  large.finish();
  CHECK(large.in_file());
  REQUIRE(large.size() == 1000);
  for (std::size_t i = 0; i < 1000; ++i) REQUIRE(large[i] == static_cast<int>(i));
  spilled_array<int> moved(std::move(large));
  CHECK(moved[999] == 999);
}

TEST_CASE("a sample that is refused leaves nothing behind") {
  const std::vector<token> good{1, 2, 3}, bad{4, 5, -1, 6};
  const std::vector<float> weights(3, 0.5F), few(2, 0.5F);
  const std::vector<token> teacher{1, 2, 3, 4, 5, 6}, wrong_teacher{1, 2, 3, -4, 5, 6};
  const std::vector<float> log_probs(6, -1.0F);
  const auto all = [](std::size_t) { return true; };
  const auto fails = [](std::size_t at) { return at == 0 ? true : throw std::runtime_error("a loss mask's own"); };
  dataset data("mine", sequence_layout::separate), expected("mine", sequence_layout::separate);
  const sample_values values{.label = 1, .reference_log_prob = -2.0, .token_weights = weights, .teacher_tokens = teacher, .teacher_log_probs = log_probs};
  sample_values wrong = values, fewer = values;
  wrong.teacher_tokens = wrong_teacher;
  fewer.token_weights = few;
  CHECK_THROWS_AS(data.add(good, all, fewer), data_error);
  CHECK(data.top_k() == 0);
  for (int i = 0; i < 2; ++i) {
    data.add(good, all, values);
    expected.add(good, all, values);
    CHECK_THROWS_AS(data.add(bad, all), data_error);
    CHECK_THROWS_AS(data.add(std::vector<token>{9, -1, 3}, all, values), data_error);
    CHECK_THROWS_AS(data.add(good, all, wrong), data_error);
    CHECK_THROWS_AS(data.add(good, all, fewer), data_error);
    CHECK_THROWS_AS(data.add(std::vector<token>{7, 8}, fails), std::runtime_error);
    CHECK_THROWS_AS(data.extend(bad), data_error);
  }
  CHECK(data.size() == 2);
  CHECK(data.largest_token() == 6);
  data.finish();
  expected.finish();
  for (std::size_t sample = 0; sample < 2; ++sample) CHECK(data.length(sample) == 3);
  CHECK(data.fingerprint() == expected.fingerprint());
  CHECK(std::vector<token>(data.labels().begin(), data.labels().end()) == std::vector<token>{1, 1});
  CHECK(data.token_weights().size() == 6);
  CHECK(data.teacher_tokens().size() == 12);
  CHECK(data.identity() == expected.identity());  // with the number of targets
}

TEST_CASE("whether a token is a target is asked once for each, in order") {
  dataset data("mine", sequence_layout::separate);
  std::vector<std::size_t> asked;
  data.add(std::vector<token>{1, 2, 3}, [&](std::size_t at) { return asked.push_back(at), at % 2 == 1; });
  CHECK(asked == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("an array gives back what was appended last, also from its file") {
  spilled_array<token> values(4 * sizeof(token));
  for (token i = 0; i < 10; ++i) values.push_back(i);
  CHECK(values.in_file());
  values.cut(9);  // in memory
  values.cut(6);  // in the file
  CHECK(values.size() == 6);
  for (token i = 6; i < 13; ++i) values.push_back(i + 100);
  values.finish();
  REQUIRE(values.size() == 13);
  for (token i = 0; i < 13; ++i) CHECK(values[static_cast<std::size_t>(i)] == (i < 6 ? i : i + 100));
}

TEST_CASE("JSON lists and JSON lines hold texts in a chosen field") {
  const scratch_folder folder;
  put_file(folder / "a.json", " [ {\"text\": \"one\", \"n\": 1},\n {\"text\": \"t\\\"wo, [}\"} ] ");
  put_file(folder / "b.jsonl", "{\"body\": \"x\"}\n\n{\"body\": \"y\"}\n");
  const dataset a = json_text_dataset(folder / "a.json", byte_tokenizer());
  REQUIRE(a.size() == 2);
  CHECK(text_of(a, 1) == "t\"wo, [}|");
  const dataset b = json_text_dataset(folder / "b.jsonl", byte_tokenizer(), {.field = "body"});
  REQUIRE(b.size() == 2);
  CHECK(text_of(b, 1) == "y|");
  CHECK(first_record(folder / "a.json") == json{{"text", "one"}, {"n", 1}});
  CHECK(first_record(folder / "b.jsonl") == json{{"body", "x"}});
  for (const char* text : {"", "[", "[]", "plain text", "{\"a\": }"}) {
    put_file(folder / "c.json", text);
    CHECK_FALSE(first_record(folder / "c.json").is_object());
  }
  put_file(folder / "d.json", "[{\"text\": " + std::string(1000000, '[') + std::string(1000000, ']') + "}]");
  CHECK_FALSE(first_record(folder / "d.json").is_object());
}

TEST_CASE("malformed records are refused with file and line") {
  const scratch_folder folder;
  const auto refuses = [&](const std::string& name, const std::string& contents, const std::string& words) {
    put_file(folder / name, contents);
    CHECK_THROWS_WITH_AS((void)json_text_dataset(folder / name, byte_tokenizer()), doctest::Contains(words.c_str()), data_error);
  };
  refuses("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n{\"text\": \"c\"}\n", "a.jsonl: must be JSON; line 2");
  refuses("b.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n", "b.jsonl: line 2: a record must have 'text'; it is missing; the record has 'txt'");
  refuses("c.jsonl", "{\"text\": \"a\"}\n\n[1]\n", "c.jsonl: line 3: a record must be an object; it is array");
  refuses("d.jsonl", "{\"text\": 5}\n", "d.jsonl: line 1: 'text' must be a string; it is number");
  refuses("e.json", "[{\"text\": \"a\"},\n{\"text\": \"b\"}", "e.json: must be a JSON list; line 2: the list does not end");
  refuses("f.json", "[{\"text\": \"a\"}\n{\"text\": \"b\"}]", "f.json: must be a JSON list; line 2: records must be separated by commas");
  refuses("g.json", "[{\"text\": \"a\"}]\nmore", "g.json: must be one JSON list; line 2");
}

TEST_CASE("an answer is found by its place, whatever it contains") {
  const scratch_folder folder;
  // the answer repeats the marker that precedes answers
  put_file(
      folder / "a.json",
      R"([{"instruction": "say", "input": "", "output": "### Response:\nhi"}, {"instruction": "add", "input": "1 2", "output": "3"}])");
  const dataset data = instruct_dataset(folder / "a.json", byte_tokenizer());
  REQUIRE(data.size() == 2);
  CHECK(learned_of(data, 0) == "### Response:\nhi|");
  CHECK(learned_of(data, 1) == "3|");
  CHECK(text_of(data, 0).find("### Instruction:\nsay\n\n### Response:\n") != std::string::npos);
  CHECK(text_of(data, 1).find("### Input:\n1 2\n\n") != std::string::npos);
  CHECK(data.layout() == sequence_layout::separate);
  const dataset both = instruct_dataset(folder / "a.json", byte_tokenizer(), {.train_on_input = true});
  CHECK(learned_of(both, 1) == text_of(both, 1));
  const dataset own = instruct_dataset(folder / "a.json", byte_tokenizer(),
                                       {.prompt = {.with_input = "{input}:{instruction}?", .without_input = "{instruction}?"}});
  CHECK(text_of(own, 1) == "1 2:add?3|");
  // prompt and answer truncated separately; a record with an empty answer
  put_file(folder / "c.json", R"([{"content": "abcdef", "summary": "uvwxyz"}, {"content": "a", "summary": ""}])");
  instruct_options cut{.prompt = {.with_input = "{instruction}", .without_input = "{instruction}"}};
  cut.instruction_field = "content";
  cut.output_field = "summary";
  cut.max_prompt_tokens = 4;
  cut.max_answer_tokens = 3;
  CHECK(instruct_dataset(folder / "c.json", byte_tokenizer(), cut).size() == 2);
  cut.skips_empty = true;
  const dataset shortened = instruct_dataset(folder / "c.json", byte_tokenizer(), cut);
  REQUIRE(shortened.size() == 1);
  CHECK(text_of(shortened, 0) == "abcduvw|");
  CHECK(learned_of(shortened, 0) == "uvw|");
  put_file(folder / "b.json", R"([{"instruction": "x", "output": null}])");
  CHECK_THROWS_WITH_AS((void)instruct_dataset(folder / "b.json", byte_tokenizer()), doctest::Contains("line 1: 'output' must be a string"),
                       data_error);
}

TEST_CASE("an epoch holds every row once, in an order that seed and epoch decide") {
  dataset data("numbers", sequence_layout::stream);
  std::vector<token> tokens(101);
  std::iota(tokens.begin(), tokens.end(), 0);
  data.add(tokens);
  data.finish();
  loader rows(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 10, .seed = 5});
  CHECK(rows.rows() == 10);
  CHECK(rows.steps_per_epoch() == 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::multiset<token> seen;
    for (std::size_t s = 0; s < 3; ++s)
      for (const host_batch& batch : rows.next())
        for (std::size_t i = 0; i < batch.targets.size(); ++i)
          if (batch.targets[i] >= 0) {
            CHECK(batch.targets[i] == batch.tokens[i] + 1);
            seen.insert(batch.targets[i]);
          }
    CHECK(seen.size() == 100);
    CHECK(std::set<token>(seen.begin(), seen.end()).size() == 100);
  }
  CHECK(rows.state() == loader_state{2, 0});
}

TEST_CASE("a loader goes on from where it was, prefetch or not") {
  const dataset data = [] {
    dataset d = samples_of({5, 6, 7, 8, 9, 10, 11, 12}, sequence_layout::separate);
    d.finish();
    return d;
  }();
  const loader_config settings{.micro_batch_size = 2, .seq_length = 12, .seed = 3};
  loader whole(data, settings);
  std::vector<std::vector<token>> steps;
  for (int s = 0; s < 9; ++s) steps.push_back(whole.next()[0].tokens);
  loader first(data, settings);
  for (int s = 0; s < 5; ++s) (void)first.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the next step is prepared by now
  const loader_state saved = first.state();
  loader second(data, settings);
  (void)second.next();
  second.restore(saved);
  for (int s = 5; s < 9; ++s) CHECK(second.next()[0].tokens == steps[static_cast<std::size_t>(s)]);
  CHECK_THROWS_WITH_AS(second.restore({0, 99}), doctest::Contains("step 99 of 4 in an epoch"), config_error);
}

TEST_CASE("rows of single samples are padded to the longest of their step, and padding is nobody's target") {
  dataset data = samples_of({4, 9, 3}, sequence_layout::separate);
  data.finish();
  loader rows(data, {.micro_batch_size = 3, .seq_length = 20, .shuffle = false});
  const host_batch batch = rows.next()[0];
  CHECK(batch.t == 8);
  CHECK(batch.target_count == 3 + 8 + 2);
  CHECK(batch.tokens[8] == 100);
  CHECK(batch.targets[2] == 3);
  CHECK(batch.targets[3] == padding_target);
  CHECK(batch.starts[3] == 3);
}

TEST_CASE("packed rows hold several samples, each with its own positions and start") {
  dataset data = samples_of({4, 5, 3, 9, 2}, sequence_layout::packed);
  data.finish();
  loader rows(data, {.micro_batch_size = 1, .seq_length = 9, .shuffle = false});
  CHECK(rows.rows() == 2);  // 3 + 4 + 2 inputs fill the first sequence, 8 + 1 the second
  const host_batch first = rows.next()[0];
  CHECK(first.tokens == std::vector<token>{0, 1, 2, 100, 101, 102, 103, 200, 201});
  CHECK(first.targets == std::vector<token>{1, 2, 3, 101, 102, 103, 104, 201, 202});
  CHECK(first.positions == std::vector<token>{0, 1, 2, 0, 1, 2, 3, 0, 1});
  CHECK(first.starts == std::vector<token>{0, 0, 0, 3, 3, 3, 3, 7, 7});
}

TEST_CASE("texts are grouped as transformers' examples group them") {
  const scratch_folder f;
  put_file(f / "a.txt", "ab\n\ncdef\ng\n");
  put_file(f / "b.jsonl", "{\"text\": \"hijkl\"}\n{\"text\": \"m\"}\n");
  const tokenizer bytes = byte_tokenizer();
  const auto samples = [&](const grouped_text_options& options) {
    const dataset all = grouped_text_dataset({f / "a.txt", f / "b.jsonl"}, bytes, options);
    std::string text;
    for (std::size_t s = 0; s < all.size(); ++s) {
      for (std::size_t i = 0; i < all.length(s); ++i) {
        text += static_cast<char>(all.at(all.begin(s) + i));
        CHECK(all.is_target(all.begin(s) + i));
      }
      text += '|';
    }
    CHECK(all.layout() == sequence_layout::separate);
    return text;
  };
  // 6 texts: "ab", "", "cdef", "g", "hijkl", "m"
  CHECK(samples({.block_size = 4}) == "abcd|efgh|ijkl|");
  CHECK(samples({.block_size = 4, .group = 3}) == "abcd|ghij|");  // "abcdef" and "ghijklm"
  CHECK(samples({.block_size = 4, .group = 2, .workers = 2}) ==
        "ab|cdef|ghij|");  // groups of 3 texts: "ab" is all tokens of its group; "m" alone has no target
  CHECK(samples({.block_size = 4, .group = 1000, .workers = 16}) == "ab|cdef|hijk|");
  CHECK_THROWS_AS((void)grouped_text_dataset({f / "a.txt"}, bytes, {.block_size = 1}), config_error);
}

TEST_CASE("samples longer than the context are refused, cut or left out, as asked") {
  dataset data = samples_of({4, 12, 5}, sequence_layout::separate);
  data.finish();
  const loader_config settings{.micro_batch_size = 3, .seq_length = 8, .shuffle = false};
  CHECK_THROWS_WITH_AS(loader(data, settings), doctest::Contains("samples must fit the sequence length of 8 tokens; sample 2 has 12"), data_error);
  data.when_too_long = overlong::truncate;
  loader cut(data, settings);
  CHECK(cut.next()[0].target_count == 3 + 8 + 4);
  data.when_too_long = overlong::leave_out;
  loader left(data, settings);
  CHECK(left.next()[0].target_count == 3 + 4);
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 0, .seq_length = 8}), config_error);
}

TEST_CASE("samples of which no label is read are refused: a run would learn nothing") {
  dataset data("samples", sequence_layout::separate);
  std::vector<token> tokens(12);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (int i = 0; i < 2; ++i) data.add(tokens, [](std::size_t at) { return at > 8; });  // an answer behind a prompt of 9 tokens
  data.finish();
  data.when_too_long = overlong::truncate;
  CHECK_THROWS_WITH_AS(
      loader(data, {.micro_batch_size = 1, .seq_length = 8}),
      "samples: must hold labels within the sequence length of 8 tokens; every token that is read belongs to a prompt. Raise the sequence length", data_error);
  loader some(data, {.micro_batch_size = 2, .seq_length = 9});
  CHECK(some.next()[0].target_count == 2);
}

TEST_CASE("a token beyond the vocabulary is named with its source") {
  dataset data = samples_of({4}, sequence_layout::separate);
  data.finish();
  CHECK_NOTHROW(require_tokens_below(data, 4));
  CHECK_THROWS_WITH_AS(require_tokens_below(data, 3),
                       doctest::Contains("samples: tokens must be below the model's vocabulary of 3; token 3 occurs"), data_error);
  dataset open("samples", sequence_layout::separate);
  for (const token impossible : {token{-1}, token{1} << 30})
    CHECK_THROWS_WITH_AS(open.add(std::vector<token>{1, impossible}), doctest::Contains("samples: tokens must lie in [0, 2^30)"),
                         data_error);
}

TEST_CASE("a dataset is read after finish(), and nothing is added to it afterwards") {
  const std::vector<token> tokens{1, 2, 3};
  const std::vector<float> weights(3, 0.5F);
  const auto all = [](std::size_t) { return true; };
  dataset data("mine", sequence_layout::separate);
  data.add(tokens, all, {.token_weights = weights});
  data.add(tokens);  // no weights: finish() detects it
  const char* const sentence = "mine: finish() must be called after the last sample; 2 samples were added";
  CHECK_THROWS_WITH_AS(loader(data, {.micro_batch_size = 1, .seq_length = 4}), sentence, config_error);
  CHECK_THROWS_AS(data.finish(), data_error);
  CHECK_THROWS_WITH_AS(loader(data, {.micro_batch_size = 1, .seq_length = 4}), sentence, config_error);

  dataset whole("mine", sequence_layout::separate);
  whole.add(tokens);
  whole.finish();
  CHECK_NOTHROW(loader(whole, {.micro_batch_size = 1, .seq_length = 4}));
  const std::string late = " must be called before finish(): a finished dataset does not change";
  CHECK_THROWS_WITH_AS(whole.add(tokens), ("mine: add()" + late).c_str(), config_error);
  CHECK_THROWS_WITH_AS(whole.add(tokens, all, {.token_weights = weights}), ("mine: add()" + late).c_str(), config_error);
  CHECK_THROWS_WITH_AS(whole.extend(tokens), ("mine: extend()" + late).c_str(), config_error);
  CHECK(dataset(std::move(whole)).size() == 1);
}

TEST_CASE("what a teacher says must be what a teacher can say") {
  constexpr float none = std::numeric_limits<float>::quiet_NaN();
  constexpr float inf = std::numeric_limits<float>::infinity();
  const auto made = [](sequence_layout layout, const std::vector<token>& ids, const std::vector<float>& log_probs, std::size_t samples = 1) {
    dataset all("samples", layout);
    const std::vector<token> tokens{1, 2, 3};
    for (std::size_t s = 0; s < samples; ++s)
      all.add(tokens, [](std::size_t) { return true; }, {.teacher_tokens = ids, .teacher_log_probs = log_probs});
    all.finish();
    return all;
  };
  const std::vector<token> ids{4, 5, 6, 7, 8, 9};
  const auto refused = [&](const std::vector<token>& of, const std::vector<float>& log_probs, const char* words,
                           sequence_layout layout = sequence_layout::separate) {
    CHECK_THROWS_WITH_AS((void)made(layout, of, log_probs), doctest::Contains(words), data_error);
  };
  CHECK_NOTHROW(made(sequence_layout::separate, ids, {0, -1, 1e-5F, -inf, -3, -4}));
  CHECK_NOTHROW(made(sequence_layout::separate, ids, {0, -1, 0, -2, none, none}, 2));   // nothing follows the last token
  CHECK_NOTHROW(made(sequence_layout::packed, ids, {none, none, none, none, none, none}));  // ignored
  CHECK_NOTHROW(made(sequence_layout::stream, ids, {0, -1, 0, -2, none, none}));
  CHECK_THROWS_WITH_AS((void)made(sequence_layout::stream, ids, {0, -1, 0, -2, none, none}, 2),
                       doctest::Contains("sample 1: a teacher's log-probabilities"), data_error);
  refused({4, 5, 6, 6, 8, 9}, {0, -1, 0, -2, -3, -4}, "samples: sample 1: token 2: a teacher's tokens must be different; 6 is there twice");
  refused(ids, {0, -1, 0.1F, -2, -3, -4}, "sample 1: token 2: a teacher's log-probabilities must be at most 0, and not all -inf; the largest is 0.1");
  refused(ids, {0, -1, -inf, -inf, -3, -4}, "must be at most 0, and not all -inf; the largest is -inf");
  refused(ids, {0, none, 0, -2, -3, -4}, "sample 1: token 1: a teacher's log-probabilities must be numbers; 1 of 2 are NaN");
  refused(ids, {none, none, 0, -2, -3, -4}, "sample 1: token 2: a teacher's log-probabilities must be there for all tokens before; those of token 1 are NaN");
  refused(ids, {0, -1, none, none, none, none},
          "sample 1: a teacher's log-probabilities must be there for all 2 tokens that another one follows, or for none; they are for 1");
  refused(ids, {none, none, none, none, none, none}, "for all 2 tokens", sequence_layout::stream);

  dataset data = made(sequence_layout::separate, ids, {0, -1, 0, -2, -3, -4}, 2);
  CHECK_NOTHROW(require_tokens_below(data, 10));
  CHECK_THROWS_WITH_AS(require_tokens_below(data, 9),
                       doctest::Contains("samples: sample 1: token 3: a teacher's tokens must be below the model's vocabulary of 9; given 9"), data_error);
  const auto spilled = [](const auto& values) {
    spilled_array<std::remove_cvref_t<decltype(values[0])>> all;
    for (const auto value : values) all.push_back(value);
    return all;
  };
  const std::vector<token> other{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
  const std::vector<float> cut{-1, -2, none, none, none, none, -1, -2, none, none, none, none};
  CHECK_NOTHROW(data.set_teacher_log_probs(spilled(other), spilled(cut), 2, 1));  // samples were truncated to one input
  CHECK_THROWS_WITH_AS(data.set_teacher_log_probs(spilled(other), spilled(cut), 2, 2), doctest::Contains("must be there for all 2 tokens"), data_error);
  CHECK(data.teacher_seq_length() == 1);  // previous value
}

TEST_CASE("samples are not added to those of a source; what a run is compared by depends on all that it reads") {
  class counted final : public sample_source {
   public:
    [[nodiscard]] std::size_t size() const override { return 3; }
    [[nodiscard]] std::size_t seq_length() const override { return 4; }
    [[nodiscard]] std::size_t vocab_size() const override { return 10; }
    void read(std::size_t, std::size_t, std::span<token> into) const override { std::fill(into.begin(), into.end(), 1); }
  };
  dataset given("counted", std::make_shared<const counted>());
  const std::vector<token> tokens{1, 2};
  CHECK_THROWS_WITH_AS(given.add(tokens), doctest::Contains("counted: add() needs a dataset that holds its tokens"), config_error);
  CHECK_THROWS_WITH_AS(given.extend(tokens), doctest::Contains("counted: extend() needs a dataset that holds its tokens"), config_error);
  CHECK(given.size() == 3);
  CHECK(given.identity() == "counted: 3 samples of 4 tokens");

  const auto identity = [](std::initializer_list<std::size_t> lengths, sequence_layout layout, std::size_t group_size = 1) {
    dataset all = samples_of(lengths, layout);
    all.group_size = group_size;
    all.finish();
    return all.identity();
  };
  const std::string one = identity({4, 70000}, sequence_layout::separate);
  CHECK(one.starts_with("samples: 2 samples, 70004 tokens, checksum "));
  CHECK(identity({4, 70000}, sequence_layout::separate) == one);
  CHECK(identity({70000, 4}, sequence_layout::separate) != one);
  CHECK(identity({4, 70000}, sequence_layout::packed) != one);
  CHECK(identity({4, 70000}, sequence_layout::separate, 2) != one);
  const auto of_mask = [](std::size_t first) {
    dataset all("samples", sequence_layout::separate);
    all.add(std::vector<token>{1, 2, 3, 4}, [&](std::size_t i) { return i >= first; });
    all.finish();
    return all.identity();
  };
  CHECK(of_mask(2) == of_mask(2));
  CHECK(of_mask(2) != of_mask(1));  // the same tokens, with another loss mask
}

TEST_CASE("real instruction sets are read whole") {
  const std::string path = test_data("instruct/alpaca/alpaca_data_0-3252_en.json");
  if (path.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  const dataset data = instruct_dataset(path, byte_tokenizer(), {.packed = true});
  CHECK(data.size() == 3252);
  CHECK(learned_of(data, 0).ends_with("|"));
  const loader rows(data, {.micro_batch_size = 4, .seq_length = 4096});
  std::vector<host_batch> batches;
  std::size_t targets = 0;
  for (std::size_t s = 0; s < rows.steps_per_epoch(); ++s) {
    rows.fill({0, s}, batches);
    targets += batches[0].target_count;
  }
  std::size_t expected = 0;
  for (std::size_t s = 0; s < data.size(); ++s) expected += learned_of(data, s).size();
  CHECK(targets == expected);
}
