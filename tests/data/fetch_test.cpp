// Downloads against a server with faults, and archives from strangers.
#include "data/fetch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/rng.h"
#include "data/archive.h"
#include "data/fixtures.h"
#include "data/server.h"
#include "files/scratch.h"

namespace tessera::data::fetch_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::read_bytes;
using test::Scratch;
using test::Server;
using test::tar_gz;
using test::write_bytes;

std::string noise(std::size_t size) {
  std::string out(size, '\0');
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<char>(tessera::mix(i));
  return out;
}

Fetch order(const Scratch& scratch, const Server& server, const std::string& content) {
  write_bytes(scratch / "reference", content);
  Fetch fetch;
  fetch.url = server.url();
  fetch.file = scratch / "got";
  fetch.sha256 = digest_of(scratch / "reference", Digest::sha256);
  fetch.max_bytes = 1 << 22;
  fetch.pause_s = 0.01;
  fetch.attempts = 3;
  fetch.silence_s = 5;
  return fetch;
}

TEST(Fetch, Checksums) {
  const Scratch scratch;
  write_bytes(scratch / "a", "");
  write_bytes(scratch / "b", "message digest");
  EXPECT_EQ(digest_of(scratch / "a", Digest::md5), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(digest_of(scratch / "b", Digest::md5), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(digest_of(scratch / "a", Digest::sha256),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of(scratch / "b", Digest::sha256),
            "f7846f55cf23e14eebeab5b4e1550cad5b509e3348fbc4efa3a1413d393cb650");
}

TEST(Fetch, AnEncryptedAddressIsNeverLeftForAPlainOne) {
  for (const char* url : {"https://a/b", "HTTPS://a/b", "HttpS://a"})
    EXPECT_STREQ(redirect_protocols(url), "https") << url;
  for (const char* url : {"http://a/b", "http://https:/", "", "http"})
    EXPECT_STREQ(redirect_protocols(url), "http,https") << url;
}

TEST(Fetch, WithAnMd5AloneThatCounts) {
  const Scratch scratch;
  const std::string content = noise(1000);
  const Server server(content, {});
  Fetch what = order(scratch, server, content);
  what.md5 = std::string(32, '0');  // not asked: the better one is known
  EXPECT_EQ(fetch(what), content.size());
  fs::remove(scratch / "got");
  what.sha256.clear();
  EXPECT_EQ(error_of([&] { fetch(what); }).kind, ErrorKind::data);
  what.md5 = digest_of(scratch / "reference", Digest::md5);
  EXPECT_EQ(fetch(what), content.size());
}

TEST(Fetch, WhatOthersPutThereIsNeitherFollowedNorUsed) {
  const Scratch scratch;
  const std::string content = noise(50'000);
  Server server(content, {});
  const Fetch what = order(scratch, server, content);
  write_bytes(scratch / "precious", "mine");
  fs::create_symlink("precious", scratch / "got.part");
  const Error error = error_of([&] { fetch(what); });
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NE(error.message.find("it is a link"), std::string::npos) << error.what();
  EXPECT_EQ(read_bytes(scratch / "precious"), "mine");
  fs::remove(scratch / "got.part");
  fs::create_symlink("not-there-yet", scratch / "got.part");
  EXPECT_EQ(error_of([&] { fetch(what); }).kind, ErrorKind::disk);
  EXPECT_FALSE(fs::exists(scratch / "not-there-yet"));
  fs::remove(scratch / "got.part");
  ASSERT_EQ(::mkfifo((scratch / "got.part").c_str(), 0666), 0);
  EXPECT_EQ(error_of([&] { fetch(what); }).kind, ErrorKind::disk);
  fs::remove(scratch / "got.part");
  // The right archive behind a link may be another one after it was checked: it is fetched, and the
  // link replaced.
  fs::create_symlink("reference", scratch / "got");
  EXPECT_EQ(fetch(what), content.size());
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(scratch / "got")));
  if (::geteuid() != 0) return;  // only then can a test make a file of somebody else
  fs::remove(scratch / "got");
  write_bytes(scratch / "got.part", content.substr(0, 1000));
  ASSERT_EQ(::chown((scratch / "got.part").c_str(), 65534, 65534), 0);
  EXPECT_NE(error_of([&] { fetch(what); }).message.find("belongs to another user"),
            std::string::npos);
}

// Asked again and again, a server would send it for ever.
TEST(Fetch, APartOfNoUseThatCannotBeRemovedEndsTheDownload) {
  for (const bool ranges : {true, false}) {
    const Scratch scratch;
    const std::string content = noise(50'000);
    Server server(content, {.ranges = ranges});
    const Fetch what = order(scratch, server, content);
    write_bytes(scratch / "got.part", noise(1000).replace(0, 5, "wrong"));
    const test::AsNobody user(scratch.folder());
    fs::permissions(scratch.folder(), fs::perms::owner_read | fs::perms::owner_exec);
    const Error error = error_of([&] { fetch(what); });
    fs::permissions(scratch.folder(), fs::perms::owner_all);
    EXPECT_EQ(error.kind, ErrorKind::disk) << error.what();
    EXPECT_EQ(error.where, (scratch / "got.part").string());
    EXPECT_NE(error.message.find("cannot be removed"), std::string::npos) << error.what();
  }
}

TEST(Fetch, WholeWithProgressAndARedirection) {
  const Scratch scratch;
  const std::string content = noise(700'000);
  const Server server(content, {.redirect = "/old"});
  Fetch what = order(scratch, server, content);
  what.url = server.url("/old");
  std::uint64_t last = 0, all = 0;
  what.progress = [&](std::uint64_t done, std::uint64_t total) {
    last = done;
    all = total;
  };
  EXPECT_EQ(fetch(what), content.size());
  EXPECT_EQ(read_bytes(scratch / "got"), content);
  EXPECT_EQ(last, content.size());
  EXPECT_EQ(all, content.size());
  EXPECT_FALSE(fs::exists(scratch / "got.part"));
  EXPECT_EQ(fetch(what), 0u);  // it is there
}

TEST(Fetch, GoesOnWhereTheLineWasCut) {
  const Scratch scratch;
  const std::string content = noise(500'000);
  Server server(content, {.cut_after = 120'000});
  EXPECT_EQ(fetch(order(scratch, server, content)), content.size());
  EXPECT_EQ(read_bytes(scratch / "got"), content);
  EXPECT_EQ(server.sent(), content.size());  // nothing twice
  ASSERT_EQ(server.requests().size(), 5u);
  EXPECT_NE(server.requests()[2].find("from 240000"), std::string::npos) << server.requests()[2];
}

TEST(Fetch, GoesOnInALaterCallAndSurvivesServersWithoutParts) {
  const Scratch scratch;
  const std::string content = noise(300'000);
  {
    Server server(content, {});
    write_bytes(scratch / "got.part", content.substr(0, 100'000));
    EXPECT_EQ(fetch(order(scratch, server, content)), 200'000u);
  }
  fs::remove(scratch / "got");
  {
    Server server(content, {.ranges = false});
    write_bytes(scratch / "got.part", content.substr(0, 100'000));
    EXPECT_EQ(fetch(order(scratch, server, content)), content.size());
  }
  fs::remove(scratch / "got");
  {
    Server server(content, {});  // everything is there but the name
    write_bytes(scratch / "got.part", content);
    EXPECT_EQ(fetch(order(scratch, server, content)), 0u);
  }
  fs::remove(scratch / "got");
  {
    Server server(content,
                  {});  // the part is of another file: noticed by the checksum, fetched anew
    write_bytes(scratch / "got.part", std::string(100'000, 'x'));
    EXPECT_EQ(fetch(order(scratch, server, content)), 500'000u);
  }
  EXPECT_EQ(read_bytes(scratch / "got"), content);
  fs::remove(scratch / "got");
  Server server(content,
                {.ranges = false,
                 .cut_after = 1000});  // never gets further: gives up instead of trying for ever
  EXPECT_EQ(error_of([&] { fetch(order(scratch, server, content)); }).kind, ErrorKind::data);
}

TEST(Fetch, FailuresSayWhatToDo) {
  const Scratch scratch;
  const std::string content = noise(100'000);
  const auto says = [&](const Server& server, auto&& change, ErrorKind kind, const char* words) {
    Fetch what = order(scratch, server, content);
    change(what);
    const Error error = error_of([&] { fetch(what); });
    EXPECT_EQ(error.kind, kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    EXPECT_FALSE(fs::exists(scratch / "got"));
  };
  const auto same = [](Fetch&) {};
  Server good(content, {});
  says(
      good, [](Fetch& f) { f.sha256 = std::string(64, '0'); }, ErrorKind::data, "wrong checksum");
  EXPECT_FALSE(fs::exists(scratch / "got.part"));
  says(
      good, [](Fetch& f) { f.max_bytes = 1000; }, ErrorKind::data,
      "more than the expected 1000 bytes");
  fs::remove(scratch / "got.part");
  says(
      good, [](Fetch& f) { f.url = "file:///etc/passwd"; }, ErrorKind::usage, "https://");
  says(
      good, [](Fetch& f) { f.url = "http://127.0.0.1:1/x"; }, ErrorKind::data, "check the address");
  says(
      good, [&](Fetch& f) { f.file = scratch / "no/such/got"; }, ErrorKind::disk, "cannot write");
  says(Server(content, {.status = 404}), same, ErrorKind::data, "404");
  says(Server(content, {.status = 503}), same, ErrorKind::data, "503");
  fs::remove(scratch / "got.part");
  says(
      Server(content, {.ranges = true, .cut_after = 40'000, .cut_times = 1, .status = 200}),
      [](Fetch& f) {
        f.progress = [](std::uint64_t done, std::uint64_t) {
          if (done > 50'000) throw Error(ErrorKind::stopped, "stopped");
        };
      },
      ErrorKind::stopped, "stopped");
}

TEST(Archive, TakesWhatIsExpectedAndNothingElse) {
  const Scratch scratch;
  const auto expect = [&] {
    return std::vector<Expected>{{"d/one", scratch / "one", 1000},
                                 {"d/two", scratch / "two", 5000}};
  };
  const std::string long_text(3000, 'y');
  write_bytes(scratch / "a.tar.gz", tar_gz({{"d/", "", '5'},
                                            {"d/one", "1"},
                                            {"d/three", "3"},
                                            {"/etc/evil", "x"},
                                            {"../evil", "x"},
                                            {"d/link", "", '2'},
                                            {"./d/two", long_text}}));
  unpack(scratch / "a.tar.gz", expect());
  EXPECT_EQ(read_bytes(scratch / "one"), "1");
  EXPECT_EQ(read_bytes(scratch / "two"), long_text);
  EXPECT_FALSE(fs::exists(scratch / "three"));

  const auto refused = [&](const std::string& bytes, const char* words) {
    write_bytes(scratch / "b.tar.gz", bytes);
    const Error error = error_of([&] { unpack(scratch / "b.tar.gz", expect()); });
    EXPECT_EQ(error.kind, ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  };
  refused(tar_gz({{"d/one", "1"}}), "d/two is not in it");
  refused(tar_gz({{"d/one", "1"}, {"d/two", "2"}, {"d/one", "3"}}), "comes twice");
  refused(tar_gz({{"d/one", std::string(1001, 'x')}}), "1001 bytes");
  refused(tar_gz({{"d/one", "", '2'}}), "not a regular file");
  refused("this is no archive", "damaged");
  refused(tar_gz({{"d/one", "1"}, {"d/two", noise(4000)}}).substr(0, 900), "damaged");
  refused("", "not in it");
  EXPECT_EQ(error_of([&] { unpack(scratch / "none", expect()); }).kind, ErrorKind::data);
  auto nowhere = expect();
  nowhere[0].to = scratch / "no/folder/one";
  EXPECT_EQ(error_of([&] { unpack(scratch / "a.tar.gz", nowhere); }).kind, ErrorKind::disk);
}

TEST(Hostile, MutatedArchivesNeverCrash) {
  const char* wanted = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const std::uint64_t rounds = wanted ? std::strtoull(wanted, nullptr, 10) : 300;
  const Scratch scratch;
  // Stored, not deflated by much: flips reach the tar structure; zlib's own checksum refuses most
  // of them at the end.
  const std::string whole = tar_gz({{"d/one", noise(700)}, {"d/two", "2"}});
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const Key key = Key{8}.with("archive fuzz").with(i);
    std::string mutant = whole;
    for (std::uint64_t k = 0; k <= i % 3; ++k)
      mutant[random_bits(key, 2 * k) % mutant.size()] ^=
          static_cast<char>(1 << random_bits(key, 2 * k + 1) % 8);
    if (i % 9 == 0) mutant.resize(random_bits(key, 20) % mutant.size());
    write_bytes(scratch / "m.tar.gz", mutant);
    try {
      unpack(scratch / "m.tar.gz",
             {{"d/one", scratch / "one", 1000}, {"d/two", scratch / "two", 1000}});
    } catch (const Error& error) {
      ASSERT_EQ(error.kind, ErrorKind::data) << error.what();
      ASSERT_EQ(std::string(error.what()).find((scratch / "m.tar.gz").string()), 0u)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::data::fetch_test
