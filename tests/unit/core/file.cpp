#include <doctest/doctest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include <xtrain/core/file.hpp>
#include "scratch.hpp"

using namespace xtrain;

TEST_CASE("a file is read as it was written") {
  const scratch_folder folder;
  write_file(folder / "a", "hello");
  CHECK(mapped_file(folder / "a").text() == "hello");
  write_file(folder / "a", "");
  CHECK(mapped_file(folder / "a").text().empty());
}

TEST_CASE("a file that is missing, or is a folder, is named") {
  const scratch_folder folder;
  CHECK_THROWS_WITH_AS(mapped_file(folder / "none"),
                       (folder / "none: must be a readable file; the system says: No such file or directory").c_str(), file_error);
  CHECK_THROWS_AS(mapped_file(folder.path()), file_error);
  CHECK_THROWS_AS(write_file(folder / "no/such/folder", "x"), file_error);
}

TEST_CASE("until it is committed, an atomic file leaves what was there") {
  const scratch_folder folder;
  write_file(folder / "a", "old");
  {
    atomic_file file(folder / "a");
    file.write("new");
    CHECK(mapped_file(folder / "a").text() == "old");
  }
  CHECK(mapped_file(folder / "a").text() == "old");
  CHECK(folder.files() == std::vector<std::string>{"a"});
}

TEST_CASE("a full disk is an error and harms nothing that was there") {
  const scratch_folder folder;
  write_file(folder / "a", "old");
  const limited_file_size limit(1000);  // writing beyond it fails as on a full disk
  CHECK_THROWS_AS(write_file(folder / "a", std::string(5000, 'x')), file_error);
  CHECK(mapped_file(folder / "a").text() == "old");
  CHECK(folder.files() == std::vector<std::string>{"a"});
}

TEST_CASE("the names in a folder are sorted; what is no readable folder is named") {
  const scratch_folder folder;
  for (const char* name : {"b", ".hidden", "a"}) write_file(folder / name, "");
  CHECK(names_in(folder.path()) == std::vector<std::string>{".hidden", "a", "b"});
  CHECK_THROWS_WITH_AS((void)names_in(folder / "none"), (folder / "none: must be a readable folder; the system says: No such file or directory").c_str(),
                       file_error);
  CHECK_THROWS_WITH_AS((void)names_in(folder / "a"), (folder / "a: must be a readable folder; the system says: Not a directory").c_str(), file_error);
  CHECK_FALSE(try_names_in(folder / "a").has_value());
}
