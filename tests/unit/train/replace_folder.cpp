#include <doctest/doctest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include <xtrain/train/replace_folder.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

void make(const std::string& folder, const std::string& contents) {
  std::filesystem::create_directory(folder);
  write_file(folder + "/file", contents);
}
std::string contents_of(const std::string& folder) { return std::string(mapped_file(folder + "/file").text()); }

template <int Problem>
int cannot_exchange(const char*, const char*) {
  errno = Problem;
  return -1;
}
/// Simulates a killed program.
int is_killed(const char*, const char*) { throw 1; }

}  // namespace

TEST_CASE("a folder takes the name of another, on file systems that exchange names and on those that do not") {
  for (const auto exchange : {detail::exchange_names, cannot_exchange<EINVAL>, cannot_exchange<ENOSYS>, cannot_exchange<EOPNOTSUPP>}) {
    const scratch_folder folder;
    const std::string part = folder / ".part", whole = folder / "whole";
    make(part, "first");
    detail::replace_folder(part, whole, exchange);
    CHECK(contents_of(whole) == "first");
    make(part, "second");
    detail::replace_folder(part, whole, exchange);
    CHECK(contents_of(whole) == "second");
    CHECK(folder.files() == std::vector<std::string>{"whole"});
  }
}

TEST_CASE("a folder that cannot take a name leaves what had it") {
  const scratch_folder folder;
  const std::string part = folder / ".part", whole = folder / "whole";
  make(whole, "first");
  CHECK_THROWS_AS(detail::replace_folder(part, whole), file_error);
  CHECK_THROWS_AS(detail::replace_folder(part, whole, cannot_exchange<EINVAL>), file_error);
  CHECK(contents_of(whole) == "first");
  make(part, "second");
  CHECK_THROWS_AS(detail::replace_folder(part, whole, cannot_exchange<EACCES>), file_error);
  CHECK_THROWS(detail::replace_folder(part, whole, is_killed));
  CHECK(contents_of(whole) == "first");
}

TEST_CASE("a folder that was being replaced when its program was killed is found again") {
  const scratch_folder folder;
  const std::string whole = folder / "whole", old = folder / "whole.replaced";
  make(old, "first");
  detail::find_replaced_folders(folder.path());
  CHECK(contents_of(whole) == "first");
  make(old, "older");
  detail::find_replaced_folders(folder.path());
  CHECK(contents_of(whole) == "first");
  CHECK(folder.files() == std::vector<std::string>{"whole"});
}
