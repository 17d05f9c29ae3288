#include "ranks/hang_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/printable.h"
#include "files/own_file.h"
#include "files/text.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

constexpr int most_dumps = 1000;
constexpr std::size_t most_bytes = 1 << 20;  // of a part

fs::path part_path(const HeartbeatFolder& folder, int rank) {
  return folder.path() / fmt::format("part-{}", rank);
}

bool has_part(const HeartbeatFolder& folder, int rank) {
  std::error_code ignored;
  return fs::exists(part_path(folder, rank), ignored);
}

std::string read_part(const HeartbeatFolder& folder, int rank) {
  const auto owner = files::owner_of(folder.path());
  return owner ? files::read_own(part_path(folder, rank), most_bytes, *owner).value_or("") : "";
}

}  // namespace

fs::path next_dump(const fs::path& log) {
  std::error_code ignored;
  if (!fs::exists(log, ignored)) return {};
  for (int i = 1; i < most_dumps; ++i)
    if (fs::path file = log.parent_path() / fmt::format("hang-{}.txt", i);
        !fs::exists(file, ignored))
      return file;
  return {};
}

std::string dump_part(const Seen& rank, const comm::Heartbeat& heartbeat,
                      const std::string& stacks) {
  const comm::Look look = heartbeat.look();
  std::string out = fmt::format("rank {} ({}, pid {}): {}; it last moved {:.1f} s ago\n", rank.rank,
                                rank.host, rank.pid, what_it_does(look), look.idle_s);
  for (const auto& group : look.groups)
    out += fmt::format("  group {} (color {}): {} operations entered, {} left\n", group.name,
                       group.color, group.entered, group.left);
  const std::vector<comm::Past> past = heartbeat.past();
  out += past.empty() ? "  no operation with others has ended\n"
                      : "  the operations with others that ended last:\n";
  for (const comm::Past& row : past)
    out += fmt::format("    {:8.3f} s ago  {}\n", row.ago_s, call_text(look, row.call));
  return out + (stacks.empty() ? "  where it is: not told\n" : "  where it is:\n" + stacks);
}

void leave_part(const HeartbeatFolder& folder, int rank, const std::string& part) {
  if (!folder || has_part(folder, rank)) return;
  const fs::path file = part_path(folder, rank),
                 draft = folder.path() / fmt::format("draft-part-{}", rank);
  std::ofstream out(draft);
  out << part;
  out.close();
  if (!out) return;  // it appears whole, or the dump says that there is nothing of this rank
  std::error_code ignored;
  fs::rename(draft, file, ignored);
}

std::string write_dump(const HeartbeatFolder& folder, const fs::path& file,
                       const std::string& verdict, const std::vector<Seen>& table,
                       std::chrono::milliseconds patience) {
  if (file.empty()) return "";
  const auto until = std::chrono::steady_clock::now() + patience;
  const auto complete = [&] {
    return std::all_of(table.begin(), table.end(),
                       [&](const Seen& rank) { return has_part(folder, rank.rank); });
  };
  while (!complete() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::string text = "verdict: " + verdict.substr(0, verdict.find('\n')) + "\n\n";
  for (const Seen& rank : table) text += waiting_line(table, rank) + "\n";
  for (const Seen& rank : table) {
    std::string part = read_part(folder, rank.rank);
    if (part.empty())
      part = fmt::format("rank {}: its process has left nothing; last seen {}\n", rank.rank,
                         what_it_does(rank.look));
    text += "\n" + part;
  }
  try {
    files::append_text(file, printable_lines(text));
    return "";
  } catch (const Error& error) {
    return error.message;
  }
}

}  // namespace tessera::run
