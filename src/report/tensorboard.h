// TensorBoard event files, written by hand: TFRecord framing around protobuf `Event` messages with
// scalar summaries. Convention: one file per process; a resumed run opens another and says from
// which step on it replaces what earlier files hold.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::report {

class EventFile {
 public:
  // Makes events.out.tfevents.TIME.HOST.PID in `folder`. `first_step`: the first one that this
  // process will write; later ones of earlier files are void. Error(disk) when it cannot be
  // written.
  EventFile(const std::string& folder, std::int64_t first_step);
  void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);
  const std::string& path() const { return path_; }

 private:
  void record(const std::string& event);
  std::string path_;
  std::ofstream file_;
};

std::uint32_t crc32c(std::string_view bytes);
std::string tf_record(
    std::string_view payload);  // length, masked crc of it, payload, masked crc of it

}  // namespace tessera::report
