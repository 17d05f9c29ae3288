// Dim signatures: parsing, inference, and the words of each mistake.
#include <gtest/gtest.h>

#include "ir/signature.h"
#include "ir/texts.h"

namespace tessera::ir::signature_test {
namespace {

using test::message_of;

std::vector<Type> shapes(const std::vector<Shape>& list) {
  std::vector<Type> types;
  for (const Shape& shape : list) types.push_back({DType::f32, shape, {}});
  return types;
}

TEST(Signature, Parses) {
  const Signature s = parse_signature("b*c!,c!->b*,");
  ASSERT_EQ(s.in.size(), 2u);
  ASSERT_EQ(s.out.size(), 2u);
  EXPECT_EQ(s.in[0].letters, "b*c");
  EXPECT_EQ(s.in[0].pinned, "c");
  EXPECT_EQ(s.out[1].letters, "");  // a scalar
}

TEST(Signature, Infers) {
  EXPECT_EQ(infer_shapes("btc,fc->btf", shapes({{2, 3, 4}, {5, 4}})),
            (std::vector<Shape>{{2, 3, 5}}));
  EXPECT_EQ(infer_shapes("*c!,c!->*c!,*", shapes({{2, 3, 4}, {4}})),
            (std::vector<Shape>{{2, 3, 4}, {2, 3}}));
  EXPECT_EQ(infer_shapes("*->*", shapes({{}})), (std::vector<Shape>{{}}));
  EXPECT_EQ(infer_shapes("b,b->", shapes({{7}, {7}})), (std::vector<Shape>{{}}));
  EXPECT_EQ(infer_shapes("b*r,*->br", shapes({{1, 2, 3, 4}, {2, 3}})),
            (std::vector<Shape>{{1, 4}}));  // '*' in the middle
}

TEST(Signature, LettersOfOperandsAndResults) {
  EXPECT_EQ(letters_in("btc,fc->btf", 1), "fc");
  EXPECT_EQ(letters_out("btc,fc->btf"), "btf");
  EXPECT_EQ(alphabet(3), "abc");
}

struct Mistake {
  std::string sig;
  std::vector<Shape> in;
  std::string words;
};

TEST(Signature, SaysWhatIsWrong) {
  const Mistake table[] = {
      {"btc,fc", {{1}, {1}}, "a signature has '->'"},
      {"bTc->b", {{1, 1, 1}}, "letters a-z"},
      {"!b->b", {{1}}, "'!' follows a dim"},
      {"bb->b", {{1, 1}}, "a dim stands twice in one operand"},
      {"bc,c->b", {{2, 3}}, "takes 2 operands, got 1"},
      {"bc->b", {{2, 3}, {3}}, "takes 1 operands, got 2"},
      {"bc->b", {{2}}, "operand 0 of \"bc->b\" is [2]"},
      {"bc,c->b", {{2, 3}, {4}}, "operand 1 of \"bc,c->b\" is [4] but c is 3"},
      {"*c,*->c", {{2, 3}, {4}}, "is [4] but '*' is [2]"},
      {"a*c->*", {{2}}, "operand 0"},
      {"b->c", {{2}}, "dim c of the result of \"b->c\" stands in no operand"},
  };
  for (const Mistake& m : table)
    EXPECT_SAYS(message_of([&] { infer_shapes(m.sig, shapes(m.in)); }), m.words);
}

}  // namespace
}  // namespace tessera::ir::signature_test
