// says: xtrain pipeline<Schedule>: must be a schedule: a name, and make(ranks, chunks, rows) that gives a pipeline_schedule
#include <xtrain/parallel/pipeline.hpp>

struct my_schedule {
  static constexpr std::string_view name = "mine";
#ifndef MISTAKE
  static xtrain::pipeline_schedule make(std::size_t ranks, std::size_t, std::vector<std::size_t> rows) {
    return xtrain::gpipe_schedule(ranks, std::move(rows));
  }
#endif
};
std::size_t size() { return sizeof(xtrain::pipeline<my_schedule>::config); }
