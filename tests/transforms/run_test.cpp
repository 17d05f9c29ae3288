// The runner: names, verifies, dumps, disables; a pass that writes a bad program is named with the
// equation.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms::run_test {
namespace {

namespace fs = std::filesystem;

const Program start = ir::parse(
    "program t mesh()\n  input x : f32[2] batch \"x\"\n  y : f32[2] = scale factor=2 x  # act\n  z "
    ": f32[2] = scale y  # act\n  output "
    "\"z\" = z\n");

Program wrong_type(const Program& p) {
  Program q = p;
  q.values.back().type.shape = {3};
  return q;
}
Program throws(const Program&) { throw Error(ErrorKind::usage, "no optimizer is named lion"); }

std::string error_of(const std::vector<Pass>& passes, const RunOptions& options = {}) {
  try {
    run(start, passes, options);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

TEST(Runner, RunsInOrderAndReports) {
  std::vector<PassReport> reports;
  const Program p =
      run(start, {{"simplify", simplify}, {"autodiff", [](const Program& q) { return q; }}}, {},
          &reports);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].name, "simplify");
  EXPECT_EQ(reports[0].eqns_before, 2u);
  EXPECT_EQ(reports[0].eqns_after, 1u);
  EXPECT_GE(reports[0].ms, 0.0);
  EXPECT_EQ(p.eqns.size(), 1u);
}

TEST(Runner, NamesThePassAndTheEquation) {
  const std::string said =
      error_of({{"simplify", [](const Program& p) { return p; }}, {"broken", wrong_type}});
  EXPECT_NE(said.find("failed after broken: in `z : f32[3] = scale y  # act`"), std::string::npos)
      << said;
  EXPECT_NE(said.find("z is declared f32[3] but scale gives f32[2]"), std::string::npos) << said;
}

TEST(Runner, NamesThePassThatThrew) {
  EXPECT_EQ(error_of({{"optimizer", throws}}),
            "failed after optimizer: no optimizer is named lion");
}

TEST(Runner, RefusesABadModel) { EXPECT_THROW(run(wrong_type(start), {}), Error); }

TEST(Runner, LeavesOutWhatIsDisabled) {
  std::vector<PassReport> reports;
  const Program p = run(start, {{"simplify", simplify}, {"broken", wrong_type}},
                        {.disabled = {"broken", "simplify"}, .dump_dir = ""}, &reports);
  EXPECT_EQ(p, start);
  EXPECT_TRUE(reports[0].disabled && reports[1].disabled);
  EXPECT_EQ(reports[0].eqns_after, 2u);
}

TEST(Runner, ThePassesOfEarlierVersionsAreDisabledByTheirOldNames) {
  std::vector<PassReport> reports;
  run(start, {{"hoist_reductions", wrong_type}, {"dce", wrong_type}},
      {.disabled = {"early", "tidy"}, .dump_dir = ""}, &reports);
  EXPECT_TRUE(reports[0].disabled && reports[1].disabled);
}

TEST(Runner, AnUnknownPassIsAnErrorThatListsThem) {
  const std::string said = error_of({{"simplify", simplify}, {"remat", simplify}},
                                    {.disabled = {"rematt"}, .dump_dir = ""});
  EXPECT_NE(said.find("there is no pass 'rematt' to disable"), std::string::npos) << said;
  EXPECT_NE(said.find("passes that can be disabled are simplify, remat"), std::string::npos)
      << said;
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Runner, DumpsTheProgramAfterEachPass) {
  const fs::path dir = fs::temp_directory_path() / ("tessera_dump_" + std::to_string(::getpid()));
  fs::remove_all(dir);
  const Program p = run(
      start,
      {{"first", simplify}, {"skipped", simplify}, {"last", [](const Program& q) { return q; }}},
      {.disabled = {"skipped"}, .dump_dir = (dir / "deep").string()});
  EXPECT_EQ(text_of(dir / "deep" / "00_model.ir"), ir::print(start));
  EXPECT_EQ(text_of(dir / "deep" / "01_first.ir"), ir::print(p));
  EXPECT_FALSE(fs::exists(dir / "deep" / "02_skipped.ir"));
  EXPECT_TRUE(fs::exists(dir / "deep" / "03_last.ir"));
  fs::remove_all(dir);
}

TEST(Runner, SaysWhenItCannotDump) {
  const fs::path file = fs::temp_directory_path() / ("tessera_file_" + std::to_string(::getpid()));
  std::ofstream(file) << "in the way";
  EXPECT_THROW(run(start, {{"simplify", simplify}}, {.disabled = {}, .dump_dir = file.string()}),
               Error);
  fs::remove(file);
}

// Equal equations become one; what differs in an attribute, a phase or the sign of a zero does not.
TEST(Simplify, KeepsWhatOnlyLooksTheSame) {
  const Program p = simplify(ir::parse(R"(program t mesh()
  input x : f32[4] batch "x"
  a : f32[2] = slice dim=0 start=0 size=2 x
  b : f32[2] = slice dim=0 start=0 size=2 x
  c : f32[2] = slice dim=0 start=2 size=2 x
  d : f32[2] = slice dim=0 start=0 size=2 x  # ~
  e : f32[2] = constant value=0 shape=[2]
  f : f32[2] = constant value=-0 shape=[2]
  g : f32[2] = constant value=-0 shape=[2]
  output "a" = a
  output "b" = b
  output "c" = c
  output "d" = d
  output "e" = e
  output "f" = f
  output "g" = g
)"));
  std::vector<std::string> made;
  for (const ir::Output& out : p.outputs) made.push_back(p.name_of(out.var));
  EXPECT_EQ(made, (std::vector<std::string>{"a", "a", "c", "d", "e", "f", "f"}));
  EXPECT_EQ(p.eqns.size(), 5u);
}

}  // namespace
}  // namespace tessera::transforms::run_test
