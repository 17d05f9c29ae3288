// Malformed texts: each refused with line and column, none with a crash; and a small mutation fuzz.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "ir/texts.h"

namespace tessera::ir::parse_test {
namespace {

using test::message_of;

const std::string head =
    "program t mesh(dp=2:data, tp=2:model)\n  input x : f32[2,3] batch \"x\"\n";

struct Malformed {
  std::string text;
  std::string where, words;
};

const std::vector<Malformed>& malformed() {
  static const std::vector<Malformed> table = {
      {"", "program:1:1", "expected 'program NAME mesh(...)', found no line"},
      {"// nothing\n\n", "program:1:1", "found no line"},
      {"  input x : f32[2] batch \"x\"\n", "program:1:3",
       "expected 'program NAME mesh(...)' before anything else"},
      {"program t\n", "program:1:10", "expected 'mesh('"},
      {"program t mesh(2:data)\n", "program:1:16", "expected AXIS=SIZE:KIND"},
      {"program t mesh(dp=2:data, dp=2:data)\n", "program:1:27",
       "another name for the second axis dp"},
      {"program t mesh(dp=0:data)\n", "program:1:19", "an axis of at least one rank"},
      {"program t mesh(a=1048576:data, b=2:data)\n", "program:1:34", "a mesh of at most 1048576"},
      {"program t mesh(dp=2:batch)\n", "program:1:21", "expected 'data'"},
      {"program t mesh(dp=2:data\n", "program:1:25", "expected ','"},
      {"program t mesh(dp=2:data[1])\n", "program:1:26", "for each of 2 ranks a part from 0"},
      {"program t mesh(dp=2:data[1,-1])\n", "program:1:28", "for each of 2 ranks a part from 0"},
      {"program t mesh() tail\n", "program:1:18", "expected the end of the line"},
      {head + "program u mesh()\n", "program:3:9", "one program in a text"},
      {head + "  input x : f32[2] batch \"y\"\n", "program:3:9", "a name that is not taken"},
      {head + "  input y f32[2] batch \"y\"\n", "program:3:11", "expected ':'"},
      {head + "  input y : f8[2] batch \"y\"\n", "program:3:13",
       "expected an element type, found 'f8[2] batch"},
      {head + "  input y : f32[2 batch \"y\"\n", "program:3:19", "expected ','"},
      {head + "  input y : f32[two] batch \"y\"\n", "program:3:17", "expected a number"},
      {head + "  input y : f32[99999999999999999999] batch \"y\"\n", "program:3:17",
       "expected a number"},
      {head + "  input y : f32[2] tensor \"y\"\n", "program:3:20", "expected 'batch'"},
      {head + "  input y : f32[2] batch y\n", "program:3:26", "expected '\"'"},
      {head + "  input y : f32[2] batch \"y\n", "program:3:27", "expected a closing quote"},
      {head + "  input y : f32[2]{pp:S0} batch \"y\"\n", "program:3:20", "an axis of the mesh"},
      {head + "  input y : f32[2]{dp:R} batch \"y\"\n", "program:3:23", "expected 'S'"},
      {head + "  input y : f32[2]{dp:S0 dp:P} batch \"y\"\n", "program:3:26", "each axis once"},
      {head + "  input y : f32[2] param \"y\" (a\n", "program:3:32", "expected ')'"},
      {head + "  y : f32[2,3] gelu x\n", "program:3:16", "expected '='"},
      {head + "  output \"y\" = x as queen of \"w\"\n", "program:3:21",
       "expected a role, found 'queen of"},
      {head + "  output \"y\" = x as gradient \"w\"\n", "program:3:30", "expected 'of'"},
      {head + "  y : f32[2,3] = swish x\n", "program:3:18", "expected an op, found 'swish x'"},
      {head + "  y : f32[2,3] = gelu z\n", "program:3:23", "a value that is defined above"},
      {head + "  y : f32[2,3] = gelu y\n", "", ""},  // own result: parses, the verifier refuses it
      {head + "  y : f32[2,3] = gelu exact=true x\n", "program:3:23",
       "an attribute of gelu, found 'exact=true x'"},
      {head + "  y : f32[2,3] = gelu tanh=1 x\n", "program:3:28", "expected true or false"},
      {head + "  y : f32[2,3] = scale factor=two x\n", "program:3:31", "expected a number"},
      {head + "  y : f32[2,3] = scale factor=1 factor=2 x\n", "program:3:33",
       "each attribute once"},
      {head + "  y : f32[2,3] = cast to=f8 x\n", "program:3:26", "an element type"},
      {head + "  y : f32[2,3] = mark label=residual x\n", "program:3:29", "expected '\"'"},
      {head + "  y : f32[6] = reshape shape=6 x\n", "program:3:30", "expected '['"},
      {head + "  y : f32[2,3] = gelu x, x\n", "program:3:24", "expected a name"},
      {head + "  , y : f32[2,3] = gelu x\n", "program:3:3", "expected a name"},
      {head + "  output y = x\n", "program:3:10", "expected '\"'"},
      {head + "  output \"y\" = z\n", "program:3:16", "a value that is defined above"},
      {head + "  output \"y\" = x updates x\n", "program:3:26", "expected '\"'"},
      {head + "  output \"y\" = x because\n", "program:3:18", "expected the end of the line"},
      {head + "  \xff\xfe\n", "program:3:3", "expected a name"},
      {head + std::string("  \0\n", 4), "program:3:3", "expected a name"},
      {head + "  \x1b[2J\n", "program:3:3", "found '?[2J'"},
  };
  return table;
}

TEST(Parse, SaysWhereAndWhat) {
  for (const Malformed& row : malformed()) {
    SCOPED_TRACE(row.text);
    if (row.where.empty()) {
      EXPECT_THROW(verify(parse(row.text)), Error);
      continue;
    }
    try {
      parse(row.text);
      ADD_FAILURE() << "was read as a program";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::usage);
      EXPECT_EQ(e.where, row.where) << e.what();
      EXPECT_SAYS(e.message, row.words);
    }
  }
}

TEST(Parse, CommentsAndBlankLinesAreSkipped) {
  const Program p = parse(
      "// a note\n\nprogram t mesh()\n  // another\n  input x : f32[2] batch \"x\"\n\n  output "
      "\"y\" = x\n");
  EXPECT_EQ(p.inputs.size(), 1u);
}

// Every mutant either parses (then print and parse agree, and the verifier decides without
// crashing) or is refused by an Error.
TEST(Parse, MutationFuzz) {
  const char* raised = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const int iterations = raised ? std::atoi(raised) : 4000;
  const std::string seed = test::every_op();
  std::vector<std::string> lines;
  std::istringstream stream(seed);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  const std::string alphabet = "abz019_.~'/ =\"[]{}(),:#!^-+\n";
  int parsed = 0, sound = 0;
  for (int n = 0; n < iterations; ++n) {
    const Key key = Key{}.with("parse fuzz").with(static_cast<std::uint64_t>(n));
    std::uint64_t draw = 0;
    auto below = [&](std::size_t limit) {
      return static_cast<std::size_t>(random_bits(key, draw++) % limit);
    };
    std::string text = seed;
    for (std::size_t edits = 1 + below(3); edits-- > 0 && !text.empty();) {
      const std::size_t at = below(text.size());
      switch (below(6)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        case 2:
          text.erase(at, 1 + below(8));
          break;
        case 3:
          text.insert(at, lines[below(lines.size())]);
          break;  // a line inside another
        case 4:
          text.replace(at, 1, std::to_string(random_bits(key, draw++) >> below(64)));
          break;  // numbers of every size
        case 5:
          text.resize(at + 1);
          break;
      }
    }
    Program p;
    try {
      p = parse(text);
    } catch (const Error& e) {
      ASSERT_EQ(e.kind, ErrorKind::usage) << e.what() << "\n" << text;
      continue;
    }
    ++parsed;
    ASSERT_EQ(print(parse(print(p))), print(p)) << text;
    try {
      verify(p);
      ++sound;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(parsed, iterations / 50) << "mutants that are all refused at once test little";
  EXPECT_GT(sound, iterations / 200);
}

TEST(Parse, CutsOfAnAxis) {
  const std::string text =
      "program t mesh(dp=3:data[4,4,2][1,1,1])\n  input x : f32[10]{dp:S0} batch \"x\"\n  output "
      "\"x\" = x\n";
  EXPECT_EQ(print(parse(text)), text);
  EXPECT_EQ(parse(text).mesh.axes[0].cuts, (std::vector<Shape>{{4, 4, 2}, {1, 1, 1}}));
}

}  // namespace
}  // namespace tessera::ir::parse_test
