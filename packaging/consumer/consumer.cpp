#include <cstdio>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/text/unicode.hpp>

int main() {
  const xtrain::learning_rate_schedule rates(xtrain::lr_schedule_kind::linear, 1.0, 0, 11, 0.0);
  std::printf("xtrain is here: the rate in the middle is %.2f, utf8proc is %s\n", rates.at(5), utf8proc_version());
}
