#include "study/state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/printable.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;

constexpr int application = 0x74737374,
              version = 1;  // "tsst": whose file it is, and how it is laid out
constexpr const char* lock_file = "study.lock";
constexpr const char* start_over = "start over with `tessera study FILE --fresh`";
constexpr int patience_ms = 10'000;  // for readers of the same file

constexpr const char* layout = R"(
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs(identity TEXT PRIMARY KEY, status INTEGER NOT NULL, attempts INTEGER NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,
  pid INTEGER NOT NULL, pid_started INTEGER NOT NULL, machine TEXT NOT NULL, exit_code INTEGER NOT NULL, reason TEXT NOT NULL,
  wall REAL NOT NULL, command TEXT NOT NULL, folder TEXT NOT NULL, record TEXT NOT NULL);
)";
constexpr const char* columns =
    "identity, status, attempts, started, ended, pid, pid_started, machine, exit_code, reason, "
    "wall, command, folder, record";

}  // namespace

// A prepared statement; its places are filled in order, and its columns read in order.
class State::Statement {
 public:
  Statement(const State& state, const std::string& sql) : state_(state) {
    if (const int code = sqlite3_prepare_v2(state.db_, sql.c_str(), -1, &statement_, nullptr);
        code != SQLITE_OK)
      state.fail("cannot be read", code);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& with(const std::string& text) {
    check(sqlite3_bind_text(statement_, ++places_, text.data(), static_cast<int>(text.size()),
                            SQLITE_TRANSIENT));
    return *this;
  }
  Statement& with(std::int64_t number) {
    check(sqlite3_bind_int64(statement_, ++places_, number));
    return *this;
  }
  Statement& with(double number) {
    check(sqlite3_bind_double(statement_, ++places_, number));
    return *this;
  }

  bool next() {
    column_ = 0;
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) state_.fail("cannot be used", code);
    return code == SQLITE_ROW;
  }
  std::string text() {
    const int bytes = sqlite3_column_bytes(statement_, column_);
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column_++));
    return data ? std::string(data, static_cast<std::size_t>(bytes)) : std::string();
  }
  std::int64_t integer() { return sqlite3_column_int64(statement_, column_++); }
  double real() { return sqlite3_column_double(statement_, column_++); }

 private:
  void check(int code) {
    if (code != SQLITE_OK) state_.fail("cannot be used", code);
  }
  const State& state_;
  sqlite3_stmt* statement_ = nullptr;
  int places_ = 0, column_ = 0;
};

State::State(const fs::path& folder, bool read_only) : path_(folder / "study.db") {
  std::error_code error;
  const bool there = fs::exists(path_, error);
  if (read_only && !there)
    throw Error(ErrorKind::usage, "the folder holds no study: there is no study.db in it",
                folder.string(), "`tessera study FILE` makes one");
  if (there && !fs::is_regular_file(fs::symlink_status(path_, error)))
    throw Error(ErrorKind::weights, "the study's database is a link or no regular file",
                path_.string(), "remove it, or choose another folder with --out");
  try {
    open(read_only);
    const auto number = [&](const char* sql) {
      Statement s(*this, sql);
      return s.next() ? s.integer() : 0;
    };
    const std::int64_t whose = number("PRAGMA application_id"),
                       laid_out = number("PRAGMA user_version");
    if (whose == 0 && laid_out == 0 && number("SELECT count(*) FROM sqlite_master") == 0 &&
        !read_only) {
      // Complete or not at all: the numbers that make it ours are written with the tables.
      execute("PRAGMA synchronous = FULL");
      execute(("BEGIN IMMEDIATE;" + std::string(layout) +
               fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT;",
                           application, version))
                  .c_str());
      return;
    }
    if (whose != application)
      throw Error(ErrorKind::weights, "this SQLite file was not made by `tessera study`",
                  path_.string(), "choose another folder with --out");
    if (laid_out != version)
      throw Error(
          ErrorKind::weights,
          fmt::format("this study was kept by another version of tessera: layout {}, expected {}",
                      laid_out, version),
          path_.string(), std::string("use that version, or ") + start_over);
    Statement sound(*this, "PRAGMA quick_check(1)");
    if (const std::string said = sound.next() ? sound.text() : "nothing"; said != "ok")
      throw Error(ErrorKind::weights, "the study's database is damaged: " + printable(said, 200),
                  path_.string(), std::string("restore it, or ") + start_over);
    execute("PRAGMA synchronous = FULL");
  } catch (...) {
    sqlite3_close(std::exchange(db_, nullptr));
    throw;
  }
}

// A study that was killed while it wrote leaves a journal that the next reader must undo, which one
// that only reads cannot.
void State::open(bool read_only) {
  for (const bool writing : {!read_only, true}) {
    const int flags = writing ? SQLITE_OPEN_READWRITE | (read_only ? 0 : SQLITE_OPEN_CREATE)
                              : SQLITE_OPEN_READONLY;
    if (const int code = sqlite3_open_v2(path_.c_str(), &db_, flags, nullptr); code != SQLITE_OK)
      fail("cannot be opened", code);
    sqlite3_busy_timeout(db_, patience_ms);
    if (writing) return;
    const int code = sqlite3_exec(db_, "PRAGMA schema_version", nullptr, nullptr, nullptr);
    if ((code & 0xff) != SQLITE_READONLY) return;
    sqlite3_close(std::exchange(db_, nullptr));
  }
}

State::~State() { sqlite3_close(db_); }

void State::fail(const std::string& what, int code) const {
  const std::string why = db_ ? sqlite3_errmsg(db_) : sqlite3_errstr(code);
  const int primary = code & 0xff;
  if (primary == SQLITE_READONLY)
    throw Error(
        ErrorKind::disk, "the study's database " + what + ": " + why, path_.string(),
        "make the folder writable: a change that was interrupted must be undone there first");
  if (primary == SQLITE_FULL || primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN ||
      primary == SQLITE_PERM)
    throw Error(ErrorKind::disk, "the study's database " + what + ": " + why, path_.string());
  if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED)
    throw Error(ErrorKind::usage, "another process keeps the study's database busy",
                path_.string());
  throw Error(ErrorKind::weights, "the study's database " + what + " and may be damaged: " + why,
              path_.string(), std::string("restore it, or ") + start_over);
}

void State::execute(const char* sql) const {
  if (const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr); code != SQLITE_OK)
    fail("cannot be written", code);
}

std::string State::get(const std::string& name) const {
  Statement s(*this, "SELECT value FROM facts WHERE name = ?");
  return s.with(name).next() ? s.text() : "";
}

void State::set(const std::string& name, const std::string& value) {
  Statement s(
      *this,
      "INSERT INTO facts VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value");
  s.with(name).with(value).next();
}

namespace {

template <class Statement>
std::pair<std::string, RunRow> row_of(Statement& s) {
  RunRow r;
  std::string identity = s.text();
  const std::int64_t status = s.integer();
  r.status = status >= 0 && status <= 3 ? static_cast<Status>(status) : Status::waiting;
  r.attempts = static_cast<int>(s.integer());
  r.started = s.real();
  r.ended = s.real();
  r.pid = static_cast<int>(s.integer());
  r.pid_started = static_cast<std::uint64_t>(s.integer());
  r.machine = s.text();
  r.exit_code = static_cast<int>(s.integer());
  r.reason = s.text();
  r.wall = s.real();
  r.command = s.text();
  r.folder = s.text();
  r.record = s.text();
  return {std::move(identity), std::move(r)};
}

}  // namespace

std::optional<RunRow> State::find(const std::string& identity) const {
  Statement s(*this, fmt::format("SELECT {} FROM runs WHERE identity = ?", columns));
  if (!s.with(identity).next()) return std::nullopt;
  return row_of(s).second;
}

std::map<std::string, RunRow> State::all() const {
  std::map<std::string, RunRow> out;
  Statement s(*this, fmt::format("SELECT {} FROM runs", columns));
  while (s.next()) out.insert(row_of(s));
  return out;
}

void State::put(const std::string& identity, const RunRow& r) {
  Statement s(
      *this, fmt::format(
                 "INSERT OR REPLACE INTO runs({}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                 columns));
  const auto whole = [](auto n) { return static_cast<std::int64_t>(n); };
  s.with(identity)
      .with(whole(r.status))
      .with(whole(r.attempts))
      .with(r.started)
      .with(r.ended)
      .with(whole(r.pid))
      .with(whole(r.pid_started));
  s.with(r.machine)
      .with(whole(r.exit_code))
      .with(r.reason)
      .with(r.wall)
      .with(r.command)
      .with(r.folder)
      .with(r.record);
  s.next();
}

void State::remove(const std::string& identity) {
  Statement s(*this, "DELETE FROM runs WHERE identity = ?");
  s.with(identity).next();
}

StudyLock::StudyLock(const fs::path& folder) {
  const fs::path path = folder / lock_file;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (descriptor_ < 0)
    throw Error(ErrorKind::disk,
                std::string("cannot open the study's lock: ") + std::strerror(errno),
                path.string());
  char who[32] = "";
  bool taken = true;  // a look of is_locked() passes; file systems without locks are trusted
  for (int i = 0; i < 5 && taken; ++i) {
    if (i > 0) ::usleep(50'000);
    taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }
  if (taken) {
    const ssize_t n = ::pread(descriptor_, who, sizeof(who) - 1, 0);
    ::close(descriptor_);
    const std::string pid =
        n > 0 ? printable(std::string(who, static_cast<std::size_t>(n) - (who[n - 1] == '\n')))
              : "unknown";
    throw Error(ErrorKind::usage, "another `tessera study` runs in this folder (pid " + pid + ")",
                folder.string(), "wait for it, end it, or choose another folder with --out");
  }
  const std::string text = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) < 0)
    return;  // only a courtesy
}

StudyLock::~StudyLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool is_locked(const fs::path& folder) {
  const int file =
      ::open((folder / lock_file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool taken = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return taken;
}

}  // namespace tessera::study
