// A run's log of metrics; an accepted one gives a page without markup from the log's text.
#include <span>
#include <string>
#include <vector>

#include <xtrain/report/report_page.hpp>
#include <xtrain/report/run_log.hpp>

#include "fuzz.hpp"

using namespace xtrain;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  put_file(fuzz::folder() / "run.jsonl", fuzz::text_of(data, size));
  fuzz::accepted = fuzz::reads([&] {
    const run_log run = read_run_log(fuzz::folder() / "run.jsonl");
    const std::vector<run_log> runs{run, run};
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}}) {
      const std::string page = report_page(std::span(runs).first(count), {.title = run.setting("recipe.device")});
      std::size_t scripts = 0;
      for (std::size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1)) ++scripts;
      fuzz::must(scripts == 1, "a page must have no script but its own");
      fuzz::must(page.find("<img") == std::string::npos, "a page must have no image");
      fuzz::must(page.size() < 1'000'000, "a page must be small");
    }
  });
  return 0;
}
