// The samples of a data set that could not be read: each is named once and counted, and too many of
// them end the run. Convention: whoever consumes batches reports here in the order of the epoch, so
// the count never depends on threads or their timing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::data {

class BadSamples {
 public:
  // More than one in so many is not a data set with a few scratches any more, but a wrong or broken
  // one.
  static constexpr std::int64_t one_in = 1000;
  // The largest number of bad samples that is put up with.
  static std::int64_t allowed(std::int64_t size) { return size / one_in; }

  // Says the problem when the sample is new. When more than allowed(size) are bad, `look` may name
  // those that nobody has met yet (it returns whether it has seen every sample), and Error(data)
  // is thrown with the first ten.
  using Look = std::function<bool(std::map<std::int64_t, std::string>& found)>;
  void add(std::int64_t index, const std::string& problem, std::int64_t size,
           const Look& look = {});
  std::int64_t count() const;
  std::vector<std::string> problems() const;  // by index

  // Where a newly found one is named; unless set, a line on stderr.
  std::function<void(const std::string& line)> say;

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> found_;
};

}  // namespace tessera::data
