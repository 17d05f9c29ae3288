#include "data/fetch.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "files/own_file.h"

namespace tessera::data {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

namespace fs = std::filesystem;

// The size of a regular file; 0 for a link, and for what is not there.
std::uint64_t size_of(const fs::path& path) {
  std::error_code problem;
  if (!fs::is_regular_file(fs::symlink_status(path, problem))) return 0;
  const auto size = fs::file_size(path, problem);
  return problem ? 0 : size;
}

// FILE.part for writing: others may have put something of that name into a shared folder before us.
std::unique_ptr<std::FILE, CloseFile> open_part(const fs::path& part, bool append) {
  const int file = files::open_own(part, append ? O_APPEND : O_TRUNC);
  const int problem = errno;
  std::unique_ptr<std::FILE, CloseFile> out(file < 0 ? nullptr
                                                     : ::fdopen(file, append ? "ab" : "wb"));
  if (out) return out;
  if (file >= 0) ::close(file);
  const char* why = problem == ELOOP   ? "it is a link, which a download does not follow"
                    : problem == EPERM ? "it belongs to another user"
                    : problem == EINVAL || problem == ENXIO ? "it is no regular file"
                                                            : std::strerror(problem);
  throw Error(ErrorKind::disk, fmt::format("cannot write: {}", why), part.string(),
              "remove it, or choose another folder");
}

// Removes a part that is of no use; every further try would meet it again.
void remove_part(const fs::path& part) {
  std::error_code problem;
  fs::remove(part, problem);
  if (problem)
    throw Error(ErrorKind::disk,
                "what was fetched before is of no use and cannot be removed: " + problem.message(),
                part.string(), "remove it, or choose another folder");
}

// An archive that lies there already counts only if nobody else can change it after it was checked.
bool is_own_file(const fs::path& path) {
  std::error_code problem;
  return fs::is_regular_file(fs::symlink_status(path, problem)) &&
         files::owner_of(path) == ::geteuid();
}

const char* name_of(Digest kind) { return kind == Digest::md5 ? "MD5" : "SHA-256"; }

// One connection. The callbacks come from C, so what they would throw waits here until the library
// has returned.
struct Transfer {
  Transfer(const Fetch& w, std::FILE* f, std::uint64_t from) : what(w), file(f), before(from) {}
  const Fetch& what;
  std::FILE* file;
  std::uint64_t before, arrived = 0;
  int write_problem = 0;
  bool too_large = false;
  std::exception_ptr stopped;
};

std::size_t take(char* bytes, std::size_t one, std::size_t count, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (transfer.before + transfer.arrived + count > transfer.what.max_bytes) {
    transfer.too_large = true;
    return CURL_WRITEFUNC_ERROR;
  }
  errno = 0;
  if (std::fwrite(bytes, one, count, transfer.file) != count) {
    transfer.write_problem = errno ? errno : EIO;
    return CURL_WRITEFUNC_ERROR;
  }
  transfer.arrived += count;
  return count;
}

int show(void* to, curl_off_t total, curl_off_t done, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (!transfer.what.progress) return 0;
  try {
    transfer.what.progress(transfer.before + static_cast<std::uint64_t>(done),
                           total > 0 ? transfer.before + static_cast<std::uint64_t>(total) : 0);
    return 0;
  } catch (...) {
    transfer.stopped = std::current_exception();
    return 1;
  }
}

struct Outcome {
  CURLcode code = CURLE_OK;
  long status = 0;
  std::uint64_t arrived = 0;
  std::string said;
};

Outcome connect(const Fetch& what, const fs::path& part, std::uint64_t from) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  if (!curl) throw Error(ErrorKind::memory, "no memory for a connection", what.url);
  const std::unique_ptr<std::FILE, CloseFile> file = open_part(part, from > 0);
  Transfer transfer{what, file.get(), from};
  std::array<char, CURL_ERROR_SIZE> said{};
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(curl.get(), option, value);
  };
  set(CURLOPT_URL, what.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, redirect_protocols(what.url));
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 5L);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(std::min(30, what.silence_s)));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(what.silence_s));
  set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(from));
  set(CURLOPT_ERRORBUFFER, said.data());
  set(CURLOPT_WRITEFUNCTION, &take);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &show);
  set(CURLOPT_XFERINFODATA, &transfer);
  Outcome out;
  out.code = curl_easy_perform(curl.get());
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &out.status);
  out.arrived = transfer.arrived;
  out.said = said[0] ? said.data() : curl_easy_strerror(out.code);
  if (transfer.stopped) std::rethrow_exception(transfer.stopped);
  errno = 0;
  if (std::fflush(file.get()) != 0 && !transfer.write_problem)
    transfer.write_problem = errno ? errno : EIO;
  if (transfer.write_problem)
    throw Error(ErrorKind::disk,
                fmt::format("cannot write: {}", std::strerror(transfer.write_problem)),
                part.string());
  if (transfer.too_large)
    throw Error(ErrorKind::data,
                fmt::format("more than the expected {} bytes arrive", what.max_bytes), what.url,
                "check the address");
  return out;
}

// Until FILE.part is all that the server has; bytes that came over the line.
std::uint64_t complete(const Fetch& what, const fs::path& part) {
  std::uint64_t arrived = 0, furthest = size_of(part);
  double pause = what.pause_s;
  for (int failures = 0;;) {
    const std::uint64_t from = size_of(part);
    const Outcome got = connect(what, part, from);
    arrived += got.arrived;
    if (got.code == CURLE_OK) return arrived;
    // The server says that nothing is left to send, or that it cannot send parts.
    if (from > 0 && got.status == 416) return arrived;
    if (from > 0 && (got.code == CURLE_RANGE_ERROR || got.code == CURLE_BAD_DOWNLOAD_RESUME)) {
      remove_part(part);
      continue;
    }
    if (got.code == CURLE_UNSUPPORTED_PROTOCOL || got.code == CURLE_URL_MALFORMAT)
      throw Error(ErrorKind::usage, got.said, what.url,
                  "give an address that begins with https:// or http://");
    const std::uint64_t there = size_of(part);
    if (there > furthest) {
      failures = 0;
      pause = what.pause_s;
    }
    furthest = std::max(furthest, there);
    ++failures;
    const bool final =
        got.status >= 400 && got.status < 500 && got.status != 408 && got.status != 429;
    if (final || failures >= what.attempts)
      throw Error(ErrorKind::data, fmt::format("the download failed: {}", got.said), what.url,
                  there > 0
                      ? fmt::format("{} bytes are kept in {}; the same command goes on from there",
                                    there, part.string())
                      : "check the address and the network");
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    pause *= 2;
  }
}

}  // namespace

const char* redirect_protocols(const std::string& url) {
  const std::string_view safe = "https:";
  const bool encrypted =
      std::equal(safe.begin(), safe.end(), url.begin(),
                 url.begin() + static_cast<std::ptrdiff_t>(std::min(safe.size(), url.size())),
                 [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  return encrypted ? "https" : "http,https";
}

std::string digest_of(const fs::path& path, Digest kind) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file)
    throw Error(ErrorKind::data, fmt::format("cannot open the file: {}", std::strerror(errno)),
                path.string());
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  if (!context ||
      !EVP_DigestInit_ex(context.get(), kind == Digest::md5 ? EVP_md5() : EVP_sha256(), nullptr))
    throw Error(ErrorKind::internal,
                fmt::format("the system's OpenSSL computes no {}", name_of(kind)), path.string());
  std::vector<char> buffer(1 << 18);
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0;)
    EVP_DigestUpdate(context.get(), buffer.data(), got);
  if (std::ferror(file.get())) throw Error(ErrorKind::data, "cannot read the file", path.string());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  std::string out;
  for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::uint64_t fetch(const Fetch& what) {
  static const CURLcode library = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(library == CURLE_OK, "libcurl starts");
  CHECK(!what.sha256.empty() || !what.md5.empty(), "a download has a checksum");
  const Digest kind = what.sha256.empty() ? Digest::md5 : Digest::sha256;
  const std::string& expected = what.sha256.empty() ? what.md5 : what.sha256;
  if (is_own_file(what.file) && digest_of(what.file, kind) == expected) return 0;
  const fs::path part = what.file.string() + ".part";
  std::string found;
  std::uint64_t arrived = 0;
  // A wrong checksum after resuming may be the fault of the old part: once more from the start.
  for (bool resumed = true; resumed;) {
    resumed = size_of(part) > 0;
    arrived += complete(what, part);
    found = digest_of(part, kind);
    if (found == expected) {
      std::error_code problem;
      fs::rename(part, what.file, problem);
      if (problem)
        throw Error(ErrorKind::disk, "cannot rename: " + problem.message(), part.string());
      return arrived;
    }
    remove_part(part);
  }
  throw Error(ErrorKind::data,
              fmt::format("wrong checksum: expected {} {}, found {}; the download was thrown away",
                          name_of(kind), expected, found),
              what.url, "try again, or another address with --url");
}

}  // namespace tessera::data
