// Names, paths and reasons are written by others: whatever they hold, a page has the elements and
// attributes that it wrote itself.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "page/compare.h"
#include "page/page.h"
#include "page/table.h"
#include "report/sample.h"

namespace tessera::report::test {
namespace hostile {

namespace fs = std::filesystem;

// One point of each kind is enough for every place that shows a string.
Study small_study() {
  Study s = sample_study(1);
  for (Part& part : s.parts)
    if (part.points.size() > 2) part.points.resize(2);
  s.parts[0].points[1].repeats.push_back(failed(1, "reason"));
  s.parts[0].points[1].fixed = {{"data.fraction", "0.5"}};
  s.running = true;
  s.remaining = 12;
  return s;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> all = {
      "<script>alert(1)</script>",
      "</script><script>alert(1)</script>",
      "\"><img src=x onerror=alert(1)>",
      "' onmouseover='alert(1)",
      "\" onload=\"alert(1)",
      "]]>",
      "-->",
      "<!--",
      "<![CDATA[x]]>",
      "<?xml version=\"1.0\"?>",
      "<!DOCTYPE x [<!ENTITY a \"b\">]>",
      "javascript:alert(1)",
      "data:text/html,<script>alert(1)</script>",
      "&lt;script&gt;",
      "&#60;script&#62;",
      "&amp;amp;",
      "&",
      "&nosuch;",
      "</title>",
      "</style><script>",
      "</svg><script>",
      "</text><a href=\"javascript:1\">",
      "\x1b[31mred\x1b[0m",
      "\x1b]0;title\x07",
      "\u202Egnp.exe",
      "\u2066\u2069\u200F\u061C",
      "\u200B\uFEFF",
      "\xff\xfe",
      "\xc0\x80",
      "\xed\xa0\x80",
      "\xf4\x90\x80\x80",
      "\xe2\x82",
      std::string("a\0b", 3),
      std::string(1, '\0'),
      "\r\n\t",
      "=1+1",
      "+cmd|' /C calc'!A0",
      "-2+3",
      "@SUM(A1)",
      "{{7*7}}",
      "${x}",
      "`id`",
      "$(id)",
      "../../../etc/passwd",
      "//evil.example/x",
      "http://evil.example",
      "file:///etc/passwd",
      "url(http://evil.example)",
      "@import 'http://evil.example'",
      "expression(alert(1))",
      "{}%s%n{0}",
      "%00",
      "日本語の名前",
      "🙂👩‍👩‍👧",
      "a b,c;\"d\"\n",
      "style=\"x\"",
      "<svg onload=alert(1)>",
      "<base href=//evil.example>",
      "<meta http-equiv=refresh content=0;url=//evil.example>",
      "<link rel=stylesheet href=//evil.example>",
      "<form action=//evil.example>",
      "<iframe src=//evil.example>",
      "",
      " ",
      std::string(20000, 'W'),
      std::string(3000, '<'),
      "1e999",
      "NaN",
      "inf"};
  return all;
}

// Pieces of the seeds are put together, and bytes turned.
std::string mutant(std::mt19937& random) {
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  std::string out;
  for (std::size_t i = 0, n = 1 + pick(3); i < n; ++i) {
    std::string piece = seeds()[pick(seeds().size())];
    if (piece.size() > 400) piece.resize(400);
    out += pick(3) == 0 && !piece.empty() ? piece.substr(pick(piece.size())) : piece;
  }
  for (std::size_t i = 0, n = pick(4); i < n && !out.empty(); ++i)
    out[pick(out.size())] = static_cast<char>(pick(256));
  return out;
}

using Shape = std::set<std::string>;  // "element", "element attribute"

Shape shape_of(const std::vector<Element>& elements) {
  Shape out;
  for (const Element& e : elements) {
    out.insert(e.name);
    for (const auto& [name, value] : e.attributes) out.insert(e.name + " " + name);
  }
  return out;
}

void expect_ours(const std::string& page, const Shape& known, const std::string& what) {
  std::vector<Element> elements;
  ASSERT_NO_THROW(elements = parse_xml(page)) << what;
  for (const std::string& s : shape_of(elements))
    EXPECT_TRUE(known.contains(s)) << what << ": " << s;
  for (const Element& e : elements)
    for (const auto& [name, value] : e.attributes) {
      const bool inside = value.starts_with("#") || value.starts_with("data:text/csv;") ||
                          value.starts_with("figures/") || value.starts_with("data/");
      EXPECT_TRUE(name != "href" || inside) << value.substr(0, 80);
      EXPECT_TRUE(name != "http-equiv" || value == "Content-Security-Policy" || value == "refresh")
          << value;
      constexpr const char* letters =
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789- ";
      EXPECT_TRUE((name != "class" && name != "id") ||
                  value.find_first_not_of(letters) == value.npos)
          << value;
    }
}

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("tessera-hostile-{}", ::getpid());
    // Both, since while a study runs the page has one more element.
    Study harmless = small_study();
    known_ = shape_of(parse_xml(render(harmless)));
    for_each_string(harmless, [](std::string& s) {
      s = s.empty() ? "x" : s + "x";
    });  // what is only there when something is set
    for (const std::string& s : shape_of(parse_xml(render(harmless)))) known_.insert(s);
    Study other = small_study();
    known_.merge(shape_of(parse_xml(text_of(write_comparison(harmless, other, folder_.string())))));
    for (const char* more : {"h2", "h2 id", "p", "p class", "text", "title", "div", "div class"})
      known_.insert(more);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string render(const Study& study) { return text_of(write_page(study, folder_.string())); }

  void look_at(const Study& study, const std::string& what) {
    const std::string page = render(study);
    expect_ours(page, known_, what);
    EXPECT_EQ(page.find("\u202E"), page.npos) << what;
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "figures")) {
      ASSERT_NO_THROW(parse_xml(text_of(entry.path()))) << what << " " << entry.path();
      ++files;
    }
    EXPECT_GT(files, 0u);
    expect_ours(text_of(write_comparison(study, small_study(), folder_.string())), known_, what);
    fs::remove_all(folder_);
  }

  fs::path folder_;
  Shape known_;
};

TEST_F(Hostile, OneStringEverywhere) {
  for (const std::string& seed : seeds()) {
    Study s = small_study();
    for_each_string(s, [&](std::string& text) { text = seed; });
    look_at(s, "everywhere: " + seed.substr(0, 60));
  }
}

TEST_F(Hostile, ManyStringsEachInItsPlace) {
  const char* asked = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const int wanted = asked ? std::max(2000, std::atoi(asked)) : 2000;
  std::mt19937 random(7);
  for (int used = 0; used < wanted;) {
    Study s = small_study();
    for_each_string(s, [&](std::string& text) {
      text = mutant(random);
      ++used;
    });
    look_at(s, fmt::format("after {} strings", used));
  }
}

// Cells of a CSV text, quotes resolved.
std::vector<std::vector<std::string>> cells_of(const std::string& csv) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    const char c = csv[i];
    std::string& cell = rows.back().back();
    if (quoted && c == '"' && i + 1 < csv.size() && csv[i + 1] == '"') {
      cell += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      rows.back().emplace_back();
    } else if (!quoted && c == '\r' && i + 1 < csv.size() && csv[i + 1] == '\n') {
      rows.push_back({""});
      ++i;
    } else {
      cell += c;
    }
  }
  EXPECT_FALSE(quoted);
  rows.pop_back();
  return rows;
}

TEST_F(Hostile, SpreadsheetsSeeNoFormula) {
  for (const std::string& seed : seeds()) {
    Study s = small_study();
    for_each_string(s, [&](std::string& text) { text = seed; });
    for (const auto& [name, csv] : csv_files(s)) {
      const auto rows = cells_of(csv);
      ASSERT_GE(rows.size(), 1u);
      for (const auto& row : rows) {
        EXPECT_EQ(row.size(), rows[0].size()) << name << " with " << seed.substr(0, 40);
        for (const std::string& cell : row) {
          if (cell.empty() || std::string("=+-@\t\r").find(cell[0]) == std::string::npos) continue;
          char* end = nullptr;
          (void)std::strtod(cell.c_str(), &end);
          EXPECT_EQ(*end, '\0') << name << ": " << cell;
        }
      }
    }
  }
}

TEST(Escaping, MakesVisibleWhatHides) {
  EXPECT_EQ(escape("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape("\x1b[0m"), "␛[0m");
  EXPECT_EQ(escape(std::string("a\0b", 3)), "a␀b");
  EXPECT_EQ(escape("a\u202Eb"), "a[U+202E]b");
  EXPECT_EQ(escape("\xff"), "\uFFFD");
  EXPECT_EQ(escape("\xc0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(escape("größe 日本"), "größe 日本");
  EXPECT_EQ(escape("abcdef", 3), "abc…");
  EXPECT_EQ(shorten("日本語の名前", 3), "日本…");
  EXPECT_EQ(slug("../<b>Strong Scaling</b>"), "b-strong-scaling-b");
  EXPECT_EQ(slug("日本"), "part");
}

}  // namespace hostile
}  // namespace tessera::report::test
