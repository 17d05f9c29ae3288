// The page as a browser sees it: all figures there, nothing on the console, nothing asked of any
// other place; the same without JavaScript. Needs Chromium, which ./setup installs where it can;
// without one these tests say so and are skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "page/compare.h"
#include "page/compare_runs.h"
#include "page/page.h"
#include "pattern.h"
#include "report/sample.h"

namespace tessera::report::test {
namespace browser {

namespace fs = std::filesystem;

std::string found_browser() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (::access((fs::path(folder) / name).c_str(), X_OK) == 0)
        return (fs::path(folder) / name).string();
  return "";
}

struct Seen {
  int status = -1;
  std::string dom, console, network;
};

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    browser_ = found_browser();
    if (browser_.empty())
      GTEST_SKIP() << "no chromium, chromium-browser or google-chrome in PATH: ./setup installs "
                      "Chromium where it can";
    folder_ = fs::temp_directory_path() / fmt::format("tessera-browser-{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override {
    std::error_code ignored;  // the browser may still write into its profile
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }

  // Names cannot be resolved: what is asked for is in the log all the same.
  Seen open(const fs::path& page, const std::string& more = "--dump-dom") {
    const std::string command = fmt::format(
        "timeout 600 '{}' --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--user-data-dir='{}/profile' --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--disable-extensions --host-resolver-rules='MAP * "
        "~NOTFOUND' "
        "--enable-logging=stderr --log-net-log='{}/net.json' {} 'file://{}' >'{}/dom.html' "
        "2>'{}/console.txt'",
        browser_, folder_.string(), folder_.string(), more, page.string(), folder_.string(),
        folder_.string());
    Seen seen;
    const int status = std::system(command.c_str());
    seen.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    seen.dom = text_of(folder_ / "dom.html");
    seen.console = text_of(folder_ / "console.txt");
    seen.network = text_of(folder_ / "net.json");
    return seen;
  }

  static std::size_t count(const std::string& text, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
    return n;
  }

  // Lines that a page caused; what the browser says about itself is not among them.
  static std::string complaints(const std::string& console) {
    std::istringstream lines(console);
    std::string out;
    for (std::string line; std::getline(lines, line);)
      if (line.find("CONSOLE") != line.npos) out += line + "\n";
    return out;
  }

  // Asked for over a network, but by the browser for itself (its updates, its clock, its accounts).
  static std::string requests(const std::string& log) {
    static const tessera::test::Pattern url("\"url\":\"(https?|ftp|wss?)://([^/\"]*)[^\"]*\"");
    std::istringstream lines(log);
    std::string out;
    for (std::string line; std::getline(lines, line);) {
      std::size_t at = 0;
      for (auto found = url.next_in(line, at); !found.empty(); found = url.next_in(line, at)) {
        const std::string& host = found[2];
        bool own = false;
        for (const char* maker : {"google.com", "googleapis.com", "gvt1.com", "gstatic.com"})
          own |= host == maker || host.ends_with(std::string(".") + maker);
        if (!own) out += found[0] + "\n";
      }
    }
    return out;
  }

  std::string browser_;
  fs::path folder_;
};

TEST_F(Browser, SeesEveryFigureAndAsksForNothing) {
  const fs::path page = write_page(sample_study(), (folder_ / "page").string());
  const std::size_t figures = count(text_of(page), "<svg ");
  ASSERT_GE(figures, 30u);
  const Seen seen = open(page);
  ASSERT_EQ(seen.status, 0) << seen.console;
  EXPECT_EQ(count(seen.dom, "<svg "), figures);
  EXPECT_EQ(count(seen.dom, "<figure"), figures);
  EXPECT_NE(seen.dom.find("Made by tessera report"), std::string::npos);
  EXPECT_EQ(complaints(seen.console), "");
  EXPECT_FALSE(seen.network.empty());
  EXPECT_EQ(requests(seen.network), "");
}

// Strings of others, in every place: still nothing is run and nothing is asked for.
TEST_F(Browser, IsNotMovedByHostileStrings) {
  Study study = sample_study(1);
  for_each_string(study, [](std::string& s) {
    s += "\"><img "
         "src=\"http://tessera.invalid/a.png\"><script>console.log('moved')</script><style>@import "
         "url(http://tessera.invalid/b.css);</style>]]>-->";
  });
  const Seen seen = open(write_page(study, (folder_ / "page").string()));
  ASSERT_EQ(seen.status, 0) << seen.console;
  EXPECT_EQ(complaints(seen.console), "");
  EXPECT_EQ(requests(seen.network), "");
  EXPECT_EQ(count(seen.dom, "<img"), 0u);
  EXPECT_EQ(count(seen.dom, "<script"), 0u);
}

// The marks that the two tests above look for are found where they are.
TEST_F(Browser, TheLookingItselfWorks) {
  std::ofstream(folder_ / "bad.html")
      << "<!DOCTYPE html><html><body><img "
         "src=\"http://tessera.invalid/a.png\"><script>console.log('moved')</script></body></html>";
  const Seen seen = open(folder_ / "bad.html");
  ASSERT_EQ(seen.status, 0) << seen.console;
  EXPECT_NE(complaints(seen.console), "");
  EXPECT_NE(requests(seen.network).find("tessera.invalid"), std::string::npos);
}

// The browser draws by scripts of its own, so JavaScript is switched off in a frame: what is in a
// sandbox runs none.
TEST_F(Browser, DrawsItWithoutJavaScriptInTheDarkAndOnAPhone) {
  const fs::path page = write_page(sample_study(1), (folder_ / "page").string());
  const auto draw = [&](const fs::path& page, const std::string& how) {
    const fs::path picture = folder_ / "picture.png";
    fs::remove(picture);
    const Seen seen =
        open(page, fmt::format("{} --hide-scrollbars --virtual-time-budget=4000 --screenshot='{}'",
                               how, picture.string()));
    EXPECT_EQ(seen.status, 0) << how << "\n" << seen.console;
    EXPECT_EQ(complaints(seen.console), "") << how;
    EXPECT_EQ(requests(seen.network), "") << how;
    const std::string bytes = text_of(picture);
    EXPECT_GT(bytes.size(), 50000u) << how << ": an empty picture";
    return bytes;
  };
  const auto framed = [&](const char* name, const std::string& sandbox) {
    std::ofstream(folder_ / name) << fmt::format(
        "<!DOCTYPE html><body><iframe {} width=\"1300\" height=\"2900\" "
        "src=\"file://{}\"></iframe></body>",
        sandbox, page.string());
    return folder_ / name;
  };
  // A frame of its own process may be drawn a moment after the picture was taken: what differs by
  // that does so once, not five times.
  std::string with, without;
  for (int turn = 0; turn < 5 && (turn == 0 || with != without); ++turn) {
    with = draw(framed("with.html", ""), "--window-size=1400,3000");
    without = draw(framed("without.html", "sandbox=\"\""), "--window-size=1400,3000");
  }
  EXPECT_TRUE(with == without) << with.size() << " and " << without.size() << " bytes of picture";
  EXPECT_FALSE(with == draw(framed("with.html", ""),
                            "--window-size=1400,3000 --blink-settings=preferredColorScheme=0"));
  draw(page, "--window-size=420,3000");
}

// In a frame as wide as a phone: a page of any kind is not wider than that. A page has no scripts,
// so the frame around it asks.
TEST_F(Browser, NoPageIsWiderThanAPhone) {
  const auto width_of = [&](const fs::path& page) {
    std::ofstream(folder_ / "phone.html") << fmt::format(
        "<!DOCTYPE html><body><iframe id=\"page\" width=\"420\" height=\"900\" "
        "style=\"border:0\" src=\"file://{}\"></iframe><p id=\"said\"></p><script>"
        "document.getElementById('page').onload = function() {{ "
        "document.getElementById('said').textContent = "
        "this.contentDocument.documentElement.scrollWidth; }}</script></body>",
        page.string());
    const Seen seen = open(folder_ / "phone.html",
                           "--dump-dom --allow-file-access-from-files --hide-scrollbars "
                           "--virtual-time-budget=4000");
    EXPECT_EQ(seen.status, 0) << seen.console;
    const std::string mark = "<p id=\"said\">";
    const std::size_t at = seen.dom.find(mark);
    return at == seen.dom.npos ? 0 : std::atoi(seen.dom.c_str() + at + mark.size());
  };
  EXPECT_EQ(width_of(write_page(sample_study(1), (folder_ / "study").string())), 420);
  Study run;
  run.name = run.title = "run";
  run.warmup = 2;
  run.command = "tessera train runs/a_run_with_a_rather_long_name_of_its_own/resolved.toml";
  Part part;
  part.name = part.title = "run";
  part.kind = PartKind::accuracy;
  part.points.push_back({"", {}, {}, {done(0, sample_run(2, 64, 27, 0.05, 0.02))}});
  run.parts.push_back(part);
  EXPECT_EQ(width_of(write_page(run, (folder_ / "run").string())), 420);
  EXPECT_EQ(
      width_of(write_comparison(sample_study(1), sample_study(1), (folder_ / "both").string())),
      420);
  EXPECT_EQ(width_of(write_runs_beside({run, run, run}, (folder_ / "beside").string())), 420);
  std::ofstream(folder_ / "wide.html") << "<body><div style=\"width:999px\">x</div></body>";
  EXPECT_GT(width_of(folder_ / "wide.html"), 900) << "the looking itself works";
}

}  // namespace browser
}  // namespace tessera::report::test
