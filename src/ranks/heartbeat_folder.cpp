#include "ranks/heartbeat_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/printable.h"
#include "base/process.h"
#include "files/own_file.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string folder_prefix = ".ranks-";
constexpr std::size_t record_bytes =
    3072;  // always as long, so that a new one covers the old one in one write

constexpr std::size_t verdict_bytes = 1 << 20, code_bytes = 16;

// A file of a heartbeat folder: the one who made the folder made it, too. What somebody else put
// there does not count.
std::string file_text(const fs::path& path, std::size_t most) {
  const std::optional<uid_t> owner = files::owner_of(path.parent_path());
  return owner ? files::read_own(path, most, *owner).value_or("") : "";
}

bool write_file(const fs::path& path, const std::string& text, int flags) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, 0644);
  if (file < 0) return false;
  const ssize_t written = ::write(file, text.data(), text.size());
  const bool whole = written == static_cast<ssize_t>(text.size());
  const int problem = written < 0 ? errno : ENOSPC;  // half of it means the second
  const bool closed = ::close(file) == 0;            // a shared file system sends it now
  if (!whole) errno = problem;
  return closed && whole;
}

const char* name_of(HeartbeatFolder::Sign sign) {
  switch (sign) {
    case HeartbeatFolder::Sign::opened:
      return "opened";
    case HeartbeatFolder::Sign::ended:
      return "ended";
    case HeartbeatFolder::Sign::dumped:
      return "dumped";
  }
  return "";
}

json to_json(const std::optional<comm::Look::Call>& call) {
  if (!call) return nullptr;
  return {call->group, static_cast<int>(call->verb), call->number, call->scope};
}
std::optional<comm::Look::Call> call_from(const json& j, std::size_t groups) {
  if (!j.is_array()) return std::nullopt;
  comm::Look::Call call{.group = j.at(0),
                        .verb = static_cast<comm::Verb>(j.at(1).get<int>()),
                        .number = j.at(2),
                        .scope = j.at(3)};
  if (call.group < 0 || call.group >= static_cast<int>(groups)) return std::nullopt;
  return call;
}

}  // namespace

Seen this_process(int rank) {
  Seen out;
  out.rank = rank;
  out.host = host_name();
  out.pid = ::getpid();
  out.started = stat_of(out.pid).started;
  return out;
}

bool is_alive(const Seen& process) {
  const char state = state_of(process);
  return state != 0 && state != 'X';
}

char state_of(const Seen& process) {
  if (process.pid <= 1 || process.started == 0 || process.host != host_name()) return 0;
  const ProcessStat stat = stat_of(process.pid);
  return stat.started != process.started || stat.state == 'Z' ? 'X'
         : stat.state == 't'                                  ? 'T'
                                                              : stat.state;
}

bool HeartbeatFolder::write(const Seen& me) const {
  if (path_.empty()) return true;
  json groups = json::array();
  for (const auto& g : me.look.groups) groups.push_back({g.name, g.color, g.entered, g.left});
  const json record = {{"rank", me.rank},
                       {"host", me.host},
                       {"pid", me.pid},
                       {"started", me.started},
                       {"tick", me.tick},
                       {"ended", me.ended},
                       {"idle_s", me.look.idle_s},
                       {"doing", me.look.doing},
                       {"inside", me.look.inside},
                       {"disk", me.look.disk},
                       {"groups", groups},
                       {"waits", to_json(me.look.waits)},
                       {"left", to_json(me.look.left)}};
  std::string text = record.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() >= record_bytes) {
    errno = EMSGSIZE;
    return false;
  }
  text.resize(record_bytes - 1, ' ');
  return write_file(path_ / fmt::format("rank-{}", me.rank), text + '\n',
                    O_NOFOLLOW | (me.tick == 0 ? O_CREAT : 0));
}

std::optional<Seen> HeartbeatFolder::read(int rank) const {
  if (path_.empty()) return std::nullopt;
  try {
    const json j = json::parse(file_text(path_ / fmt::format("rank-{}", rank), record_bytes));
    Seen out;
    out.rank = rank;
    out.host = j.at("host");
    out.pid = j.at("pid");
    out.started = j.at("started");
    out.tick = j.at("tick");
    out.ended = j.at("ended");
    out.look.idle_s = j.at("idle_s");
    out.look.doing = j.at("doing");
    out.look.inside = j.at("inside");
    out.look.disk = j.at("disk");
    for (const json& g : j.at("groups"))
      out.look.groups.push_back(
          {.name = g.at(0), .color = g.at(1), .entered = g.at(2), .left = g.at(3)});
    out.look.waits = call_from(j.at("waits"), out.look.groups.size());
    out.look.left = call_from(j.at("left"), out.look.groups.size());
    return out;
  } catch (const json::exception&) {  // not there, or half of it is new: the next look will do
    return std::nullopt;
  }
}

std::vector<Seen> HeartbeatFolder::read_all() const {
  std::vector<Seen> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (const std::string name = entry.path().filename(); name.starts_with("rank-"))
      if (const int rank = std::atoi(name.c_str() + 5); rank != launcher_rank)
        if (auto seen = read(rank)) out.push_back(std::move(*seen));
  return out;
}

std::optional<HeartbeatFolder::Verdict> HeartbeatFolder::verdict() const {
  if (path_.empty()) return std::nullopt;
  const std::string text = file_text(path_ / "verdict", verdict_bytes);
  const auto line = text.find('\n');
  if (line == text.npos) return std::nullopt;
  return Verdict{std::atoi(text.c_str()), text.substr(line + 1)};
}

// It appears whole, and only if there is none: false when there is.
bool HeartbeatFolder::appears_first(const std::string& text, const char* name) const {
  const fs::path draft = path_ / fmt::format("draft-{}-{}-{}", name, host_name(), ::getpid());
  if (!write_file(draft, text, O_CREAT | O_TRUNC | O_NOFOLLOW))
    return true;  // better twice than never
  const bool first = ::link(draft.c_str(), (path_ / name).c_str()) == 0 || errno != EEXIST;
  ::unlink(draft.c_str());
  return first;
}

bool HeartbeatFolder::decide(const Verdict& verdict) const {
  return path_.empty() ||
         appears_first(fmt::format("{}\n{}", verdict.code, verdict.text), "verdict");
}

void HeartbeatFolder::leave_code(int code) const {
  if (!path_.empty() && code != 0) appears_first(fmt::format("{}\n", code), "code");
}

std::optional<int> HeartbeatFolder::code() const {
  const std::string text = path_.empty() ? "" : file_text(path_ / "code", code_bytes);
  int code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
  const bool whole = error == std::errc() && std::string_view(end) == "\n";
  return whole && code > 0 && code < 256 ? std::optional(code) : std::nullopt;
}

void HeartbeatFolder::leave(Sign sign) const {
  if (!path_.empty()) write_file(path_ / name_of(sign), "", O_CREAT | O_NOFOLLOW);
}

bool HeartbeatFolder::left(Sign sign) const {
  std::error_code ignored;
  return !path_.empty() && fs::exists(path_ / name_of(sign), ignored);
}

void HeartbeatFolder::remove() const {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

HeartbeatFolder given_folder() {
  const char* path = std::getenv(heartbeat_variable);
  std::error_code ignored;
  return path && fs::is_directory(path, ignored) ? HeartbeatFolder(path) : HeartbeatFolder();
}

HeartbeatFolder new_heartbeat_folder(const fs::path& place) {
  std::string path = place / (folder_prefix + "XXXXXX");
  if (!::mkdtemp(path.data())) return {};
  HeartbeatFolder made(path);
  made.write(this_process(launcher_rank));
  return made;
}

void HeartbeatFolder::wait_for_dump() const {
  const auto until =
      std::chrono::steady_clock::now() + parts_within + std::chrono::milliseconds(400);
  while (!left(Sign::dumped) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void sweep_heartbeat_folders(const fs::path& place) {
  const auto gone = [](const Seen& process) { return state_of(process) == 'X'; };
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(place, ignored)) {
    if (!entry.path().filename().string().starts_with(folder_prefix)) continue;
    if (!files::is_own_folder(entry.path())) continue;  // somebody else's, whatever is in it
    const HeartbeatFolder old(entry.path());
    const std::optional<Seen> launcher =
        old.read(launcher_rank);  // without one it is just being made, or another version's
    const std::vector<Seen> ranks = old.read_all();
    if (launcher && gone(*launcher) && std::all_of(ranks.begin(), ranks.end(), gone)) old.remove();
  }
}

void end_job(const HeartbeatFolder& folder, const HeartbeatFolder::Verdict& verdict,
             const fs::path& log, const std::function<std::string()>& last) {
  if (!folder.decide(verdict)) {
    const int code = folder.verdict().value_or(verdict).code;
    if (code == static_cast<int>(ErrorKind::hang)) folder.wait_for_dump();
    std::_Exit(code);
  }
  const auto say = [&log](const std::string& text, bool to_people) {
    if (to_people) [[maybe_unused]]
      const ssize_t told = ::write(STDERR_FILENO, text.data(), text.size());
    write_file(log, text, O_APPEND);
  };
  say(printable_lines("error: " + verdict.text + "\n"), !given_folder());
  if (last) {
    if (const std::string more = last(); !more.empty())
      say(printable_lines("note: " + more + "\n"), true);
    folder.leave(HeartbeatFolder::Sign::dumped);
  }
  std::_Exit(verdict.code);
}

}  // namespace tessera::run
