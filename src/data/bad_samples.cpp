#include "data/bad_samples.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/check.h"
#include "base/say.h"

namespace tessera::data {

void BadSamples::add(std::int64_t index, const std::string& problem, std::int64_t size,
                     const Look& look) {
  std::lock_guard lock(mutex_);
  if (found_.emplace(index, problem).second) {
    const std::string line = "bad image, another takes its place: " + problem;
    if (say)
      say(line);
    else
      tessera::say(stderr, "warning: {}\n", line);
  }
  if (static_cast<std::int64_t>(found_.size()) <= allowed(size)) return;
  const bool all = look && look(found_);
  Error error(ErrorKind::data,
              fmt::format("{}{} of {} images cannot be used; at most 0.1%, here {}, are replaced "
                          "by others",
                          all ? "" : "at least ", found_.size(), size, allowed(size)),
              "data", "`tessera data verify SPEC` lists them all; replace or remove them");
  int shown = 0;
  for (const auto& [_, what] : found_)
    if (++shown <= 10) error.and_also(what);
  if (shown > 10) error.and_also(fmt::format("and {} more", shown - 10));
  throw error;
}

std::int64_t BadSamples::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(found_.size());
}

std::vector<std::string> BadSamples::problems() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [_, what] : found_) out.push_back(what);
  return out;
}

}  // namespace tessera::data
