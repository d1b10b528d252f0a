#include <doctest/doctest.h>

#include <string>

#include <xtrain/io/zip.hpp>
#include "pickled.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct archive_file : scratch_folder {
  std::string read(const std::string& contents, const std::string& name) {
    put_file(*this / "a.zip", contents);
    const mapped_file file(*this / "a.zip");
    const stored_zip archive(file);
    return archive.find(name) == nullptr ? "(none)" : std::string(*archive.find(name));
  }
  void refuses(const std::string& contents, const std::string& words) {
    CAPTURE(words);
    CHECK_THROWS_WITH_AS((void)read(contents, ""), doctest::Contains(words.c_str()), file_error);
  }
};

std::string replaced(std::string text, std::size_t at, const std::string& by) { return text.replace(at, by.size(), by); }

}  // namespace

TEST_CASE("entries are views of what is stored, with 32-bit and with 64-bit sizes, with a comment behind them or without") {
  archive_file a;
  const std::vector<pickled::zip_entry> entries = {
      {.name = "x/a", .contents = "one"}, {.name = "x/b", .contents = "two", .wide = true}, {.name = "empty", .contents = ""}};
  for (const bool wide : {false, true}) {
    for (const std::string comment : {"", "PK\5\6 is not the end"}) {
      const std::string file = pickled::zip(entries, wide, comment);
      CHECK(a.read(file, "x/a") == "one");
      CHECK(a.read(file, "x/b") == "two");
      CHECK(a.read(file, "empty").empty());
      CHECK(a.read(file, "x") == "(none)");
    }
  }
}

TEST_CASE("what cannot be viewed as it lies is refused by name") {
  archive_file a;
  a.refuses(pickled::zip({{.name = "x/big", .contents = "abc", .method = 8}}),
            "entry 'x/big' must be stored as it is; it is compressed (method 8)");
  a.refuses(pickled::zip({{.name = "secret", .contents = "abc", .flags = 1}}), "entry 'secret' must not be encrypted");
  a.refuses(pickled::zip({{.name = "a", .contents = "1"}, {.name = "a", .contents = "2"}}),
            "entry 'a' must be there once; it is there twice");
}

TEST_CASE("entries that share bytes are refused, and those that lie side by side in any order are not") {
  archive_file a;
  const std::string good = pickled::zip({{.name = "a", .contents = "123"}, {.name = "b", .contents = "4567"}, {.name = "c", .contents = ""}});
  CHECK(a.read(good, "b") == "4567");
  const std::size_t first = good.find("PK\1\2"), second = good.find("PK\1\2", first + 1);
  const std::size_t second_header = good.find("PK\3\4", 1);
  REQUIRE(second_header != std::string::npos);
  // the directory's record of 'b' points to the header of 'a'
  std::string twice = replaced(good, second + 42, std::string(4, '\0'));
  twice = replaced(twice, second + 20, std::string("\3\0\0\0\3\0\0\0", 8));
  a.refuses(twice, "entry 'b' must begin where no other lies; 'a' reaches to byte");
  // 'a' claims more bytes than precede 'b'
  const std::string longer = replaced(good, first + 20, std::string("\4\0\0\0\4\0\0\0", 8));
  a.refuses(longer, "entry 'b' must begin where no other lies; 'a' reaches to byte");
  // the directory's order differs
  const std::size_t third = good.find("PK\1\2", second + 1);
  std::string turned = good.substr(0, first) + good.substr(second, third - second) + good.substr(first, second - first) + good.substr(third);
  CHECK(a.read(turned, "a") == "123");
  CHECK(a.read(turned, "b") == "4567");
}

TEST_CASE("an archive that lies about where things are is refused") {
  archive_file a;
  const std::string good = pickled::zip({{.name = "abc", .contents = "12345"}});
  const std::size_t directory = good.find("PK\1\2"), end = good.find("PK\5\6");
  CHECK(a.read(good, "abc") == "12345");
  a.refuses("", "its directory must be at the end");
  a.refuses(good.substr(0, good.size() - 1), "Is the file cut short?");
  a.refuses(replaced(good, end + 10, "\2"), "a directory record must be at byte");
  a.refuses(replaced(good, end + 16, "\xff\xff\xff\x7f"), "a directory record must be at byte 2147483647");
  a.refuses(replaced(good, directory + 20, std::string("\xf0\0\0\0\xf0\0\0\0", 8)),
            "abc must lie inside the file; it is said to be 240 bytes");
  a.refuses(replaced(good, directory + 42, "\1"), "entry 'abc' must begin at byte 1; it does not");
  a.refuses(replaced(good, directory + 28, "\xff\xff"), "a name must lie inside the file");
  a.refuses(replaced(good, directory + 24, std::string("\xff\xff\xff\xff", 4)), "it is compressed");
  const std::string wide = pickled::zip({{.name = "abc", .contents = "12345", .wide = true}}, true);
  const std::size_t field = wide.find("PK\1\2") + 46 + 3;
  a.refuses(replaced(wide, field + 2, "\x10"), "a zip64 field must hold the sizes that it is asked for");
  a.refuses(replaced(wide, field + 2, "\xff"), "a field must lie inside its record");
  a.refuses(replaced(wide, wide.find("PK\6\7") + 8, "\xff"), "the zip64 end record must be at byte 255");
}
